from __future__ import annotations

from collections.abc import Callable

import pytest
from django.test import Client

from webapp.accounts import tokens
from webapp.accounts.models import Team, User
from webapp.api.calls.limits import BUCKETS


@pytest.fixture(autouse=True)
def full_buckets():
    BUCKETS.clear()


@pytest.fixture
def caller() -> Callable[..., Client]:
    """Returns an API client that makes calls with this person's token."""

    def make(user: User, *scopes: str, team: Team | None = None) -> Client:
        text = tokens.issue(user, team or user.personal_team, "tests", scopes or ("read", "submit", "verify"))[1]
        return Client(headers={"Authorization": f"Bearer {text}", "Accept": "application/json"})

    return make


@pytest.fixture
def alice(people, caller) -> Client:
    return caller(people.alice)
