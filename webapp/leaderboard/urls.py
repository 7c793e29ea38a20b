"""URLs of the leaderboard: entries, individual results, suites and exports."""

from django.urls import path

from webapp.leaderboard import views, views_exports, views_results, views_suites
from webapp.leaderboard.shown import views as shown

app_name = "leaderboard"

urlpatterns = [
    path("leaderboard/", views.table, name="table"),
    path("leaderboard/cells.json", views.cells_json, name="cells"),
    path("leaderboard/entries/<int:entry_id>/", views.entry_page, name="entry"),
    path("leaderboard/entries.csv", views_exports.entries_csv, name="entries_csv"),
    path("leaderboard/entries.json", views_exports.entries_json, name="entries_json"),
    path("leaderboard/results/", views_results.results, name="results"),
    path("leaderboard/results/<int:result_id>/", views_results.result, name="result"),
    path("leaderboard/results/<int:result_id>/visibility", views_results.set_seen_by, name="visibility"),
    path("leaderboard/beside/", shown.suites_beside, name="beside"),
    path("leaderboard/tasks/<uuid:task_id>/", shown.task_page, name="task"),
    path("leaderboard/runs/<uuid:run_id>/", shown.result_page, name="shown"),
    path("leaderboard/runs/<uuid:run_id>/badge.svg", shown.result_badge, name="badge"),
    path("leaderboard/opening", shown.set_opening, name="opening"),
    path("leaderboard/results.csv", views_exports.results_csv, name="csv"),
    path("leaderboard/results.json", views_exports.results_json, name="json"),
    path("leaderboard/schema.json", views_exports.schema_json, name="schema"),
    path("leaderboard/suites/", views_suites.suites, name="suites"),
    path("leaderboard/suites/new", views_suites.new_suite, name="new_suite"),
    path("leaderboard/suites/seen-by", views_suites.set_preference, name="preference"),
    path("leaderboard/suites/<uuid:suite_id>/", views_suites.edit_suite, name="suite"),
    path("leaderboard/suites/<uuid:suite_id>/delete", views_suites.delete_suite, name="delete_suite"),
    path("leaderboard/suites/<uuid:suite_id>/tasks.txt", views_suites.suite_file, name="suite_file"),
]
