"""Views besides the API's resources: the OpenAPI document, a page that shows it, and a response for unknown URLs."""

from __future__ import annotations

import json
from functools import lru_cache

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET

from webapp.api.api import api
from webapp.api.calls.problems import plain
from webapp.api.reference import Reference


@lru_cache(maxsize=1)
def document() -> str:
    return json.dumps(api.get_openapi_schema(), ensure_ascii=False)


@require_GET
def openapi(request: HttpRequest) -> HttpResponse:
    """Serve the document, which is the same for everyone and contains no personal data, because tools read it before they have a token."""
    return HttpResponse(document(), content_type="application/json")


@require_GET
def reference(request: HttpRequest) -> HttpResponse:
    scheme = "https" if settings.HTTPS else request.scheme
    base = f"{scheme}://{request.get_host()}"
    context = {
        "reference": Reference.of(json.loads(document()), base),
        "start_curl": CURL.replace("URL", base),
        "start_cli": f"stitchwork login {base}\nstitchwork verify task.py mine.py --tier full --min-speedup 1.0\nstitchwork submit task.py --follow",
        "start_mcp": MCP.replace("URL", f"{base}/mcp"),
    }
    return render(request, "api/reference.html", context)


CURL = """export STITCHWORK_TOKEN=sw_…
curl -sS -H "Authorization: Bearer $STITCHWORK_TOKEN" URL/api/v1/me"""
# The MCP configuration in the format that most coding agents accept.
MCP = """{
  "mcpServers": {
    "stitchwork": {"type": "http", "url": "URL", "headers": {"Authorization": "Bearer sw_…"}}
  }
}"""


@csrf_exempt
def nothing(request: HttpRequest, rest: str = "") -> HttpResponse:
    return plain(404, f"There is nothing at {request.path}.", "GET /api/v1/openapi.json describes all calls.")
