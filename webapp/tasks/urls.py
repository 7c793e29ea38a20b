"""URLs for submitting a model, verifying a program, and a team's tasks."""

from django.urls import path

from webapp.tasks import views, views_live, views_several, views_submit

app_name = "tasks"

urlpatterns = [
    path("submit/", views_submit.submit, name="submit"),
    path("verify/", views_submit.verify_own, name="verify"),
    path("submit/several/", views_several.several, name="several"),
    path("submit/check", views_live.check, name="check"),
    path("submit/module", views_live.module_form, name="module"),
    path("submit/try", views_live.try_out, name="try"),
    path("submit/try/<uuid:try_out_id>", views_live.try_out_state, name="try_state"),
    path("submit/estimate", views_live.estimate, name="estimate"),
    path("examples/<slug:slug>.py", views_submit.example_source, name="example"),
    path("tasks/", views.task_list, name="list"),
    path("tasks/import", views_several.import_tasks, name="import"),
    path("tasks/<uuid:task_id>/", views.task_page, name="task"),
]
