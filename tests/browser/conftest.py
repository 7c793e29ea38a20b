"""A real browser against a real Daphne on the test database. Run these tests separately: `DJANGO_ALLOW_ASYNC_UNSAFE=1 pytest tests/browser`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

from tests.installation import data_directory
from tests.integration.processes.stack import Stack
from tests.ordering import longest_first
from tests.served import daphne
from tests.unit.webapp.people import People
from webapp.accounts.models import SignInLink, User
from webapp.environment import ROOT

# Playwright's own event loop runs in this thread, so Django would refuse to use the database.
os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"

CHROMIUM = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    longest_first(items)


@pytest.fixture(scope="session")
def browser_type_launch_args() -> dict:
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine: apt install chromium, or set CHROMIUM to its path")
    if not (ROOT / ".assets/static/vendor/codemirror.js").exists():
        pytest.skip("the front-end packages are not bundled: make assets")
    return {"executable_path": CHROMIUM, "args": ["--no-sandbox"]}


@pytest.fixture(scope="session")
def server(django_db_setup) -> Iterator[str]:
    """Yields the base URL of a Daphne process that serves the test database."""
    with daphne() as base:
        yield base


@pytest.fixture(scope="session")
def installation(tmp_path_factory) -> Iterator[Stack]:
    """Yields an installation started as by `make run`, with a person in place of the model, for tests in which programs are verified."""
    data = tmp_path_factory.mktemp("installation") / "data"
    stack = Stack(data_directory(data))
    (data / "llm.toml").write_text('[profiles.by-hand]\nkind = "mailbox"\n')
    for name in ("DATABASE_URL", "DJANGO_ALLOW_ASYNC_UNSAFE"):
        stack.environment.pop(name, None)
    stack.start()
    yield stack
    stack.stop()


@pytest.fixture
def people(transactional_db) -> People:
    return People.make()


@pytest.fixture
def sign_in(page, server):
    """Opens the page as `user` through a one-time link."""

    def enter(user: User):
        page.goto(f"{server}/sign-in/{SignInLink.issue(user)}/")
        return page

    return enter


@pytest.fixture(autouse=True)
def no_errors_in_the_page(request, transactional_db):
    """Fails the test if a script fails or a policy refuses anything. The page is closed before the database is flushed, so it makes no further
    requests."""
    if "page" not in request.fixturenames:
        yield
        return
    page = request.getfixturevalue("page")
    said: list[str] = []
    page.on("pageerror", lambda error: said.append(str(error)))
    # Refusals, requests that a test aborts, and a network that a test disconnects.
    provoked = ("the server responded with a status of 4", "net::ERR_FAILED", "net::ERR_INTERNET_DISCONNECTED")
    page.on(
        "console", lambda message: said.append(message.text) if message.type == "error" and not any(p in message.text for p in provoked) else None
    )
    yield
    assert not said
