"""Second-factor pages that also work if SECRET_KEY has changed and the stored secrets can no longer be decrypted."""

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
    """Raised if a second-factor secret cannot be read because it was encrypted with a different SECRET_KEY."""


def says_what_is_lost(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Responds with 409 and explains what happened and who can fix it. Without the secret, no code can be verified, so the person cannot sign in with
    a second factor."""

    @wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            response = view(request, *args, **kwargs)
            if isinstance(response, SimpleTemplateResponse) and not response.is_rendered:
                response.render()  # render here, because the template may also read recovery codes
            return response
        except SecretLost as error:
            log.error("%s %s", request.path, error)
            return render(request, "mfa/secret_lost.html", status=409)

    return guarded
