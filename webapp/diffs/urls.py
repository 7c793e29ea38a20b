"""Diff URLs, nested under a run. The URL contains the sides: "3...4", "task...4" or "<other run>:2...4"."""

from __future__ import annotations

from django.urls import path

from webapp.diffs import views, views_measured

app_name = "diffs"

urlpatterns = [
    path("runs/<uuid:run_id>/diff/", views.choose_sides, name="choose"),
    path("runs/<uuid:run_id>/diff/<str:sides>/", views.diff_page, name="diff"),
    path("runs/<uuid:run_id>/diff/<str:sides>/rows", views.diff_rows, name="rows"),
    path("runs/<uuid:run_id>/diff/<str:sides>/measure", views_measured.measure, name="measure"),
    path("runs/<uuid:run_id>/measured/<uuid:measured_id>/", views_measured.progress, name="measured"),
    path("runs/<uuid:run_id>/measured/<uuid:measured_id>/cancel", views_measured.cancel, name="cancel"),
]
