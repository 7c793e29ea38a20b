"""URLs for signing in, the account and the team settings."""

from django.urls import path

from webapp.accounts import views_account, views_audit, views_team
from webapp.accounts.sign_in import views_sign_in

app_name = "accounts"

urlpatterns = [
    path("sign-in/<str:token>/", views_sign_in.sign_in_link, name="sign_in_link"),
    path("sign-out/", views_sign_in.sign_out, name="sign_out"),
    path("invitations/<str:token>/", views_sign_in.invitation, name="invitation"),
    path("account/", views_account.account, name="account"),
    path("account/tokens/", views_account.my_tokens, name="tokens"),
    path("account/tokens/<uuid:token_id>/revoke", views_account.revoke_token, name="revoke_token"),
    path("teams/new", views_account.new_team, name="new_team"),
    path("teams/switch", views_account.switch_team, name="switch"),
    path("teams/<uuid:team_id>/", views_team.team, name="team"),
    path("teams/<uuid:team_id>/name", views_team.rename, name="rename"),
    path("teams/<uuid:team_id>/invitations/", views_team.invite, name="invite"),
    path("teams/<uuid:team_id>/invitations/<uuid:invitation_id>/revoke", views_team.revoke_invitation, name="revoke_invitation"),
    path("teams/<uuid:team_id>/members/<int:member_id>/role", views_team.set_role, name="set_role"),
    path("teams/<uuid:team_id>/members/<int:member_id>/remove", views_team.remove, name="remove"),
    path("teams/<uuid:team_id>/tokens/", views_team.team_tokens, name="team_tokens"),
    path("teams/<uuid:team_id>/devices/", views_team.team_devices, name="team_devices"),
    path("teams/<uuid:team_id>/models/", views_team.team_models, name="team_models"),
    path("teams/<uuid:team_id>/audit/", views_audit.audit, name="audit"),
    path("teams/<uuid:team_id>/audit.csv", views_audit.audit_csv, name="audit_csv"),
]
