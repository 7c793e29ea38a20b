"""What there is beside the four destinations, and the living style page."""

from django.urls import path

from webapp.ui import views

app_name = "ui"

urlpatterns = [
    path("palette", views.find, name="find"),
    path("advanced/", views.advanced, name="advanced"),
    path("styleguide/", views.styleguide, name="styleguide"),
]
