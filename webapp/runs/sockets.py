"""Websocket URLs."""

from django.urls import path

from webapp.runs.live.consumers import RunConsumer

socket_urlpatterns = [path("ws/runs/<uuid:run_id>/", RunConsumer.as_asgi())]
