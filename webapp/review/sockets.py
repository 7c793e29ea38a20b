"""Websocket URLs."""

from django.urls import path

from webapp.review.consumers import ReviewConsumer

socket_urlpatterns = [path("ws/review/", ReviewConsumer.as_asgi())]
