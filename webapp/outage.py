"""Responds to requests during a database outage with status 503 and a page that does not need the database."""

from __future__ import annotations

import sys

from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views import defaults

from webapp.api.calls.problems import plain

SENTENCE = "The database does not answer."
HINT = "Runs continue as soon as it is available again, and what they have written is kept. Try again in a moment."
RETRY_AFTER = "5"  # seconds; the supervisor restarts the embedded server within a few seconds
# SQL states of a server that is starting up, shutting down or out of resources. An error without a state means that the connection itself failed.
STATES = ("08", "57P0", "53300")


def server_error(request: HttpRequest) -> HttpResponse:
    """Django's `handler500`, which runs while the error is being handled."""
    if not away(sys.exc_info()[1]):
        return defaults.server_error(request)
    if request.path.startswith("/api/"):
        return plain(503, SENTENCE, HINT, Retry_After=RETRY_AFTER)
    if "text/html" not in request.headers.get("Accept", "text/html") and "application/json" in request.headers.get("Accept", ""):
        response: HttpResponse = JsonResponse({"error": f"{SENTENCE} {HINT}"}, status=503)
    else:
        # Render without the request, because context processors query the database.
        context = {"again": request.get_full_path() if request.method == "GET" else "/", "title": SENTENCE, "text": HINT}
        response = render(None, "503.html", context, status=503)
    response["Retry-After"] = RETRY_AFTER
    response["Cache-Control"] = "no-store"
    return response


def away(error: BaseException | None) -> bool:
    """Returns whether the error or one of its causes means that the database server could not be reached. A statement timeout does not count."""
    seen = 0
    while error is not None and seen < 10:
        if isinstance(error, (OperationalError, InterfaceError)):
            state = getattr(error.__cause__, "sqlstate", None)
            return state is None or state.startswith(STATES)
        error, seen = error.__cause__ or error.__context__, seen + 1
    return False
