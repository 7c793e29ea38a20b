"""allauth's views under our paths. They have no namespace, because allauth's own code looks up these names."""

from allauth.account import views as account
from allauth.mfa.base import views as two_factor
from allauth.mfa.recovery_codes import views as recovery
from allauth.mfa.totp import views as totp
from django.urls import path, re_path

from webapp.accounts.sign_in.second_factor import says_what_is_lost
from webapp.accounts.sign_in.with_mail import needs_mail

urlpatterns = [
    path("sign-in/", account.login, name="account_login"),
    path("sign-in/code/", says_what_is_lost(two_factor.authenticate), name="mfa_authenticate"),
    path("sign-in/inactive/", account.account_inactive, name="account_inactive"),
    path("sign-up/", account.signup, name="account_signup"),
    path("password/forgotten/", needs_mail(account.password_reset), name="account_reset_password"),
    path("password/forgotten/sent/", needs_mail(account.password_reset_done), name="account_reset_password_done"),
    re_path(
        r"^password/new/(?P<uidb36>[0-9A-Za-z]+)-(?P<key>.+)/$", needs_mail(account.password_reset_from_key), name="account_reset_password_from_key"
    ),
    path("password/new/done/", needs_mail(account.password_reset_from_key_done), name="account_reset_password_from_key_done"),
    path("account/password/", account.password_change, name="account_change_password"),
    path("account/password/first/", account.password_set, name="account_set_password"),
    path("account/email/", needs_mail(account.email), name="account_email"),
    path("account/email/sent/", needs_mail(account.email_verification_sent), name="account_email_verification_sent"),
    re_path(r"^account/email/(?P<key>[-:\w]+)/$", needs_mail(account.confirm_email), name="account_confirm_email"),
    path("account/confirm/", account.reauthenticate, name="account_reauthenticate"),
    path("account/confirm/code/", says_what_is_lost(two_factor.reauthenticate), name="mfa_reauthenticate"),
    path("account/two-factor/", says_what_is_lost(two_factor.index), name="mfa_index"),
    path("account/two-factor/on/", says_what_is_lost(totp.activate_totp), name="mfa_activate_totp"),
    path("account/two-factor/off/", says_what_is_lost(totp.deactivate_totp), name="mfa_deactivate_totp"),
    path("account/two-factor/codes/", says_what_is_lost(recovery.view_recovery_codes), name="mfa_view_recovery_codes"),
    path("account/two-factor/codes/new/", says_what_is_lost(recovery.generate_recovery_codes), name="mfa_generate_recovery_codes"),
    path("account/two-factor/codes.txt", says_what_is_lost(recovery.download_recovery_codes), name="mfa_download_recovery_codes"),
]
