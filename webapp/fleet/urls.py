"""URLs of the device pages: capabilities, missing features, and connecting another device."""

from django.urls import path

from webapp.fleet import views, views_connect

app_name = "fleet"

urlpatterns = [
    path("devices/", views.devices, name="devices"),
    path("devices/connect/", views_connect.connect, name="connect"),
    path("devices/enrol", views_connect.enrol, name="enrol"),
]
