"""Comparing: one page, whose sides stand in its address."""

from __future__ import annotations

from django.urls import path

from webapp.compare import views

app_name = "compare"

urlpatterns = [path("compare/", views.compare, name="compare")]
