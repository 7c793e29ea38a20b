"""Devices: what is there, what it can do, what is missing."""

from django.urls import path

from webapp.fleet import views

app_name = "fleet"

urlpatterns = [path("devices/", views.devices, name="devices")]
