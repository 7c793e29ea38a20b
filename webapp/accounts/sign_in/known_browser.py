"""Browsers that somebody has signed in with before.

Limits on wrong passwords count by name and address. Where many people come from one address (an office, a proxy that nobody has configured), a
stranger there could use up what its neighbours need. So a browser with which a person has signed in before counts for itself, for that person's
name alone: what strangers do does not close it, and it opens nothing to them.
"""

from __future__ import annotations

import secrets

from django.conf import settings
from django.core import signing
from django.http import HttpRequest, HttpResponse

from webapp.accounts.models import User

COOKIE = f"{settings.SESSION_COOKIE_NAME}_known"
SALT = "stitchwork known browser"
SECONDS = 180 * 24 * 3600
MOST = 5  # names that one browser keeps, the latest


def remember(request: HttpRequest, response: HttpResponse, user: User) -> None:
    """Once a person has signed in."""
    kept = {name: number for name, number in _held(request).items() if name != user.get_username().lower()}
    names = {**dict(list(kept.items())[-(MOST - 1) :]), user.get_username().lower(): secrets.token_hex(8)}
    value = signing.dumps(names, salt=SALT)
    response.set_cookie(COOKIE, value, max_age=SECONDS, httponly=True, secure=settings.SESSION_COOKIE_SECURE, samesite="Lax", path="/")


def number(request: HttpRequest, name: str) -> str:
    """Of a browser in which the person of this name has signed in; else empty."""
    return _held(request).get(name.strip().lower(), "")


def _held(request: HttpRequest) -> dict[str, str]:
    try:
        held = signing.loads(request.COOKIES.get(COOKIE, ""), salt=SALT, max_age=SECONDS)
    except signing.BadSignature:
        return {}
    return {str(name): str(number) for name, number in held.items()} if isinstance(held, dict) else {}
