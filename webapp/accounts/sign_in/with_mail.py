"""Pages that are useful only if the installation can send mail."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse


def needs_mail(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    @wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if not settings.MAIL:
            raise Http404("this installation sends no mail: set EMAIL_HOST")
        return view(request, *args, **kwargs)

    return guarded
