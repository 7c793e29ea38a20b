"""URLs of the list of advanced pages, the glossary and the living style guide."""

from django.urls import path

from webapp.ui import views

app_name = "ui"

urlpatterns = [
    path("palette", views.find, name="find"),
    path("advanced/", views.advanced, name="advanced"),
    path("glossary/", views.glossary, name="glossary"),
    path("styleguide/", views.styleguide, name="styleguide"),
]
