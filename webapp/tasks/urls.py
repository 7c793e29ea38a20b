"""Submitting, verifying one's own program, and the tasks that a team keeps."""

from django.urls import path

from webapp.tasks import views, views_submit

app_name = "tasks"

urlpatterns = [
    path("submit/", views_submit.submit, name="submit"),
    path("verify/", views_submit.verify_own, name="verify"),
    path("submit/check", views_submit.check, name="check"),
    path("examples/<slug:slug>.py", views_submit.example_source, name="example"),
    path("tasks/", views.task_list, name="list"),
    path("tasks/<uuid:task_id>/", views.task_page, name="task"),
]
