"""Browsers in which somebody has signed in before.

Failed sign-ins are counted by name and address. If many people share one address (in an office, or behind a proxy that is not configured), a stranger
there could use up everybody else's attempts. Attempts from a browser in which a person has signed in before are therefore counted separately, but
only for that person's name. Strangers can neither lock such a browser nor gain access through it.
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
MOST = 5  # number of recent names that a browser remembers


def remember(request: HttpRequest, response: HttpResponse, user: User) -> None:
    """Remembers the person in this browser after a sign-in."""
    kept = {name: number for name, number in _held(request).items() if name != user.get_username().lower()}
    names = {**dict(list(kept.items())[-(MOST - 1) :]), user.get_username().lower(): secrets.token_hex(8)}
    value = signing.dumps(names, salt=SALT)
    response.set_cookie(COOKIE, value, max_age=SECONDS, httponly=True, secure=settings.SESSION_COOKIE_SECURE, samesite="Lax", path="/")


def number(request: HttpRequest, name: str) -> str:
    """Returns the browser's number if the person with this name has signed in from it before, or else an empty string."""
    return _held(request).get(name.strip().lower(), "")


def _held(request: HttpRequest) -> dict[str, str]:
    try:
        held = signing.loads(request.COOKIES.get(COOKIE, ""), salt=SALT, max_age=SECONDS)
    except signing.BadSignature:
        return {}
    return {str(name): str(number) for name, number in held.items()} if isinstance(held, dict) else {}
