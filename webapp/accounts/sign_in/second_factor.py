"""Pages of the second factor, where the key that its secrets are encrypted by is no longer the one that they were written with."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.response import SimpleTemplateResponse

log = logging.getLogger(__name__)


class SecretLost(Exception):
    """A secret of the second factor cannot be read: it was encrypted by another SECRET_KEY."""


def says_what_is_lost(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Answers 409 with what happened and who can do what about it; without the secret no code can be right, so nobody gets in by it."""

    @wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            response = view(request, *args, **kwargs)
            if isinstance(response, SimpleTemplateResponse) and not response.is_rendered:
                response.render()  # here: a template reads recovery codes too
            return response
        except SecretLost as error:
            log.error("%s %s", request.path, error)
            return render(request, "mfa/secret_lost.html", status=409)

    return guarded
