from __future__ import annotations

import pytest

from tests.unit.webapp.cast import make_run, make_user
from webapp.accounts.models import User
from webapp.runs.models import Run


@pytest.fixture
def user(db) -> User:
    return make_user()


@pytest.fixture
def run(user) -> Run:
    return make_run(user)
