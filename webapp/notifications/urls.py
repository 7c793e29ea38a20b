"""URLs of the webhooks, below those of a person's notifications."""

from django.urls import path

from webapp.notifications import views

app_name = "notifications"

urlpatterns = [
    path("notifications/hooks/", views.hooks, name="hooks"),
    path("notifications/hooks/add", views.add, name="add"),
    path("notifications/hooks/<uuid:hook_id>/change", views.change, name="change"),
    path("notifications/hooks/<uuid:hook_id>/test", views.test, name="test"),
    path("notifications/hooks/<uuid:hook_id>/delete", views.delete, name="delete"),
]
