"""URLs of the language model pages: profiles, spending and the mailbox."""

from django.urls import path

from webapp.llm import views_mailbox, views_models, views_replay

app_name = "llm"

urlpatterns = [
    path("runs/<uuid:run_id>/calls/<int:seq>/replay", views_replay.replay, name="replay"),
    path("runs/<uuid:run_id>/replays/<int:replay_id>", views_replay.replayed, name="replayed"),
    path("runs/<uuid:run_id>/reply", views_mailbox.reply, name="reply"),
    path("models/", views_models.models, name="models"),
    path("models/<str:name>/try", views_models.try_model, name="try"),
    path("mailbox/", views_mailbox.mailbox, name="mailbox"),
    path("mailbox/<uuid:letter_id>/", views_mailbox.letter, name="letter"),
]
