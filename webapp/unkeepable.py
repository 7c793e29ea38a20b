"""Responds with a client error to values that no database can store.

Such values are null characters, unpaired surrogates, and numbers or times outside the range of every column.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db import DataError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from webapp.api.calls.problems import plain

SENTENCE = "A value of this request cannot be stored."
HINT = "It contains a null character, half a surrogate pair, or a number or a time that is out of range. Nothing was changed."


class Unkeepable:
    """Middleware that catches values that slip through the views' checks."""

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> Any:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        if not isinstance(error, (DataError, UnicodeEncodeError)):
            return None
        if request.path.startswith("/api/"):
            return plain(400, SENTENCE, HINT)
        return render(request, "400.html", {"said": f"{SENTENCE} {HINT}"}, status=400)
