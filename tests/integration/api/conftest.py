from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.served import daphne
from tests.unit.webapp.people import People
from webapp.accounts import tokens


@pytest.fixture(scope="session")
def server(django_db_setup) -> Iterator[str]:
    """Yields the base URL of a Daphne process that serves the test database."""
    with daphne() as base:
        yield base


@pytest.fixture
def people(transactional_db) -> People:
    return People.make()


@pytest.fixture
def token(people) -> str:
    """Returns one of Alice's tokens for her team, with every scope that a program needs."""
    return tokens.issue(people.alice, people.alice.personal_team, "tests", ["read", "submit", "verify"])[1]


@pytest.fixture
def environment(server, token, tmp_path) -> dict[str, str]:
    """Returns the command line's environment, with the token and the URL."""
    return {
        "STITCHWORK_URL": server,
        "STITCHWORK_TOKEN": token,
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
    }
