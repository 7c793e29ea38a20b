"""The API, its OpenAPI document and its reference page. Any other path under the API's prefix returns a JSON problem instead of a page."""

from django.urls import path, re_path

from webapp.api import views
from webapp.api.api import api

urlpatterns = [
    path("api/v1/openapi.json", views.openapi, name="openapi"),
    path("api/v1/docs", views.reference, name="api_reference"),
    path("api/v1/", views.nothing),
    path("api/v1/", api.urls),
    re_path(r"^api(/.*)?$", views.nothing),
]
