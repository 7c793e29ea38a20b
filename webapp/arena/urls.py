"""The arena's pages."""

from django.urls import path

from webapp.arena import views

app_name = "arena"

urlpatterns = [
    path("arena/", views.arenas, name="list"),
    path("arena/new/", views.start, name="start"),
    path("arena/<uuid:arena_id>/", views.arena, name="arena"),
    path("arena/<uuid:arena_id>/arena.json", views.export, name="export"),
    path("arena/<uuid:arena_id>/cancel/", views.cancel, name="cancel"),
]
