"""The leaderboard and its exports."""

from django.urls import path

from webapp.leaderboard import views

app_name = "leaderboard"

urlpatterns = [
    path("leaderboard/", views.table, name="table"),
    path("leaderboard/results.csv", views.export_csv, name="csv"),
    path("leaderboard/results.json", views.export_json, name="json"),
]
