"""URLs of the review: under a run, a team's overview, a person's notifications, and shared links."""

from django.urls import path

from webapp.review import views_lists, views_shares, views_threads, views_verdicts

app_name = "review"

urlpatterns = [
    path("review/", views_lists.overview, name="overview"),
    path("review/threads/<int:thread_id>/", views_threads.permalink, name="thread"),
    path("notifications/", views_lists.notifications, name="notifications"),
    path("notifications/read", views_lists.mark_read, name="mark_read"),
    path("notifications/wishes", views_lists.choose, name="choose"),
    path("notifications/<int:notification_id>/", views_lists.notification, name="notification"),
    path("runs/<uuid:run_id>/review/state", views_threads.state, name="state"),
    path("runs/<uuid:run_id>/review/placed", views_threads.placed, name="placed"),
    path("runs/<uuid:run_id>/review/people", views_threads.people, name="people"),
    path("runs/<uuid:run_id>/review/read", views_threads.read, name="read"),
    path("runs/<uuid:run_id>/review/threads", views_threads.open_thread, name="open"),
    path("runs/<uuid:run_id>/review/threads/<int:thread_id>", views_threads.comments, name="comments"),
    path("runs/<uuid:run_id>/review/threads/<int:thread_id>/reply", views_threads.reply, name="reply"),
    path("runs/<uuid:run_id>/review/threads/<int:thread_id>/resolve", views_threads.resolve, name="resolve"),
    path("runs/<uuid:run_id>/review/comments/<int:comment_id>/edit", views_threads.edit, name="edit"),
    path("runs/<uuid:run_id>/review/comments/<int:comment_id>/delete", views_threads.delete, name="delete"),
    path("runs/<uuid:run_id>/review/comments/<int:comment_id>/history", views_threads.history, name="history"),
    path("runs/<uuid:run_id>/candidates/<int:number>/verdict", views_verdicts.verdict, name="verdict"),
    path("runs/<uuid:run_id>/shares", views_shares.run_shares, name="shares"),
    path("runs/<uuid:run_id>/shares/<uuid:share_id>/revoke", views_shares.revoke, name="revoke"),
    path("share/<str:token>/", views_shares.shared, name="shared"),
]
