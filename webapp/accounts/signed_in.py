"""The request type for a signed-in person, which API operations and views behind `login_required` rely on, and a lookup of a session's user."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib.auth import get_user
from django.contrib.sessions.backends.db import SessionStore
from django.http import HttpRequest

if TYPE_CHECKING:
    from django_htmx.middleware import HtmxDetails

    from webapp.accounts.models import Team, User
    from webapp.accounts.tokens import TokenGrant


class Request(HttpRequest):
    """Declares the attributes that our middleware adds to Django's request. Only streams, which bypass Django, create instances."""

    user: User
    team: Team
    htmx: HtmxDetails
    grant: TokenGrant | None  # set if the request came with a token


def user_of_session(key: str) -> User | None:
    """Rereads a session from the database and returns its active user, or None if the session has ended."""
    request = HttpRequest()
    request.session = SessionStore(key)
    user = get_user(request)
    return user if user.is_authenticated and user.is_active else None
