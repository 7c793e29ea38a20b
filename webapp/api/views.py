"""What the API has beside its resources: the OpenAPI document, a page that shows it, and an answer for addresses that do not exist."""

from __future__ import annotations

import json
from functools import lru_cache

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET

from webapp.api.api import api
from webapp.api.problems import plain
from webapp.api.reference import Reference


@lru_cache(maxsize=1)
def document() -> str:
    return json.dumps(api.get_openapi_schema(), ensure_ascii=False)


@require_GET
def openapi(request: HttpRequest) -> HttpResponse:
    """The same for everyone, and without anybody's data: tools read it before they have a token."""
    return HttpResponse(document(), content_type="application/json")


@require_GET
def reference(request: HttpRequest) -> HttpResponse:
    base = request.build_absolute_uri("/").rstrip("/")
    return render(request, "api/reference.html", {"reference": Reference.of(json.loads(document()), base)})


@csrf_exempt
def nothing(request: HttpRequest, rest: str = "") -> HttpResponse:
    return plain(404, f"There is nothing at {request.path}.", "GET /api/v1/openapi.json describes everything that there is.")
