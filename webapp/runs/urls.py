"""URLs of runs: the list at the root, and each run with its pages below."""

from django.urls import path
from django.views.generic import RedirectView

from webapp.runs.pages import views_artefact, views_candidate, views_list, views_run, views_steer, views_ticked, views_timeline, views_trace

app_name = "runs"

urlpatterns = [
    path("", views_list.run_list, name="list"),
    path("runs/", RedirectView.as_view(pattern_name="runs:list", query_string=True)),
    path("runs/live", views_list.run_list_live, name="live"),
    path("runs/ticked", views_ticked.ticked, name="ticked"),
    path("runs/filters", views_ticked.save_filter, name="save_filter"),
    path("runs/<uuid:run_id>/dismiss", views_ticked.dismiss, name="dismiss"),
    path("runs/<uuid:run_id>/again", views_list.run_again, name="rerun"),
    path("runs/<uuid:run_id>/archive", views_list.run_archive, name="archive"),
    path("runs/<uuid:run_id>/publish", views_list.run_publish, name="publish"),
    path("runs/<uuid:run_id>/", views_run.run_page, name="run"),
    path("runs/<uuid:run_id>/standing", views_run.run_standing, name="standing"),
    path("runs/<uuid:run_id>/ways", views_run.run_ways, name="ways"),
    path("runs/<uuid:run_id>/events", views_run.run_events, name="events"),
    path("runs/<uuid:run_id>/decisions", views_run.run_decisions, name="decisions"),
    path("runs/<uuid:run_id>/trace", views_trace.stretch, name="trace"),
    path("runs/<uuid:run_id>/messages/<int:seq>", views_trace.message, name="message"),
    path("runs/<uuid:run_id>/calls/<int:seq>", views_trace.call, name="call"),
    path("runs/<uuid:run_id>/search", views_trace.find, name="search"),
    path("runs/<uuid:run_id>/control", views_run.run_control, name="control"),
    path("runs/<uuid:run_id>/note", views_steer.send_note, name="note"),
    path("runs/<uuid:run_id>/plan", views_steer.plan_page, name="plan"),
    path("runs/<uuid:run_id>/budget", views_steer.budget_page, name="budget"),
    path("runs/<uuid:run_id>/fork", views_steer.fork_page, name="fork"),
    path("runs/<uuid:run_id>/task.py", views_artefact.task_source, name="task_source"),
    path("runs/<uuid:run_id>/best.py", views_artefact.best_program, name="best"),
    path("runs/<uuid:run_id>/artefacts/<str:sha>", views_artefact.artefact, name="artefact"),
    path("runs/<uuid:run_id>/candidates/<int:number>/", views_candidate.candidate_page, name="candidate"),
    path("runs/<uuid:run_id>/candidates/<int:number>/program.py", views_artefact.candidate_program, name="program"),
    path("runs/<uuid:run_id>/candidates/<int:number>/<str:tab>", views_candidate.candidate_fragment, name="fragment"),
    path("runs/<uuid:run_id>/timeline/<str:sha>/", views_timeline.timeline_page, name="timeline"),
    path("runs/<uuid:run_id>/timeline/<str:sha>/trace.json", views_timeline.timeline_trace, name="timeline_trace"),
]
