"""The caller: a program with a token, or a person with a browser session."""

from __future__ import annotations

from typing import Any, cast

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest
from ninja.security import HttpBearer, SessionAuth

from webapp.accounts import tokens
from webapp.accounts.access import grant_of
from webapp.accounts.audit import client_address
from webapp.accounts.signed_in import Request
from webapp.api.calls.limits import limit
from webapp.api.calls.problems import TOKEN_HINT, CallRefused


class Token(HttpBearer):
    """A personal token: `Authorization: Bearer sw_…`. It acts for its owner, in its team, within its scopes."""

    def __call__(self, request: HttpRequest) -> Any | None:
        header = request.headers.get("Authorization", "")
        if not header:
            return None  # the session is then used instead
        grant = tokens.authenticate(header, client_address(request))
        if grant is None:
            raise CallRefused(
                401, "This token is unknown, revoked or expired.", TOKEN_HINT, headers={"WWW-Authenticate": 'Bearer error="invalid_token"'}
            )
        known = cast(Request, request)
        known.user, known.grant, known.team = grant.user, grant, grant.team
        limit(request, creating=request.method == "POST")
        return grant

    def authenticate(self, request: HttpRequest, token: str) -> Any | None:
        raise NotImplementedError  # `__call__` does the work


class Session(SessionAuth):
    """The session cookie of the pages. Calls that change something also need the X-CSRFToken header."""

    def __call__(self, request: HttpRequest) -> Any | None:
        if not request.user.is_authenticated:
            return None
        user = super().__call__(request)  # 403 if the CSRF token is missing
        limit(request, creating=request.method == "POST")
        return user


def needs(request: Request, *scopes: str) -> None:
    """Raise `PermissionDenied` if the token has none of these scopes.

    A session has all scopes; the role's permissions are checked separately.
    """
    grant = grant_of(request)
    if grant is not None and not any(grant.allows(scope) for scope in scopes):
        raise PermissionDenied(f"This token lacks the scope {' or '.join(scopes)}; it has {', '.join(sorted(grant.scopes)) or 'none'}.")
