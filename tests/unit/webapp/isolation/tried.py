"""Makes one request as a given user and returns the outcome. The request's effects are rolled back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.conf import settings
from django.db import transaction
from django.test import Client

from webapp.accounts.models import User

CHANGES = ("POST", "DELETE")
REFUSED = {403, 404}
NO_SUCH_METHOD = 405
SIGN_IN = "/sign-in/"


@contextmanager
def undone() -> Iterator[None]:
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def sign_in(user: User) -> None:
    """Returns one session for all requests of this person."""
    client = Client()
    client.force_login(user)
    user.cookie = client.cookies[settings.SESSION_COOKIE_NAME].value


def ask(user: User | None, method: str, url: str, data: Any = None, *, token: str = "", json: bool = False) -> Any:
    """Returns the answer; an exception in a view counts as status 500."""
    client = Client(raise_request_exception=False)
    if user is not None:
        client.cookies[settings.SESSION_COOKIE_NAME] = user.cookie
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    named = {"content_type": "application/json"} if json else {}
    with undone():
        response = getattr(client, method.lower())(url, data if data is not None else {}, headers=headers, **named)
        response.body = b"" if response.streaming else response.content
    return response


def leads_to_sign_in(response: Any) -> bool:
    return response.status_code in (301, 302) and SIGN_IN in response.headers["Location"]
