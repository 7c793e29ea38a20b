"""The living style page."""

from django.urls import path

from webapp.ui import views

app_name = "ui"

urlpatterns = [path("styleguide/", views.styleguide, name="styleguide")]
