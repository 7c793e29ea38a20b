"""The comparison: a single page whose URL contains the sides."""

from __future__ import annotations

from django.urls import path

from webapp.compare import views

app_name = "compare"

urlpatterns = [path("compare/", views.compare, name="compare")]
