"""A real browser against a real Daphne on the test database. A run of its own: `DJANGO_ALLOW_ASYNC_UNSAFE=1 pytest tests/browser`."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from tests.unit.webapp.people import People
from webapp.accounts.models import SignInLink, User
from webapp.environment import ROOT

# Playwright's own loop runs in this thread, and Django would refuse the database for it.
os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"

CHROMIUM = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
READY_SECONDS = 60


@pytest.fixture(scope="session")
def browser_type_launch_args() -> dict:
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine: apt install chromium, or set CHROMIUM to its path")
    if not (ROOT / ".assets/static/vendor/codemirror.js").exists():
        pytest.skip("the front-end packages are not bundled: make assets")
    return {"executable_path": CHROMIUM, "args": ["--no-sandbox"]}


@pytest.fixture(scope="session")
def server(django_db_setup) -> Iterator[str]:
    """The base URL of a Daphne process that serves the test database."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = os.environ | {"DATABASE_URL": _database_url(), "DJANGO_SETTINGS_MODULE": "tests.settings", "PORT": str(port), "DATABASE_POOL": "8"}
    command = [sys.executable, "-m", "daphne", "-v", "0", "-e", f"tcp:port={port}:interface=127.0.0.1", "webapp.asgi:application"]
    process = subprocess.Popen(command, cwd=ROOT, env=environment)
    try:
        base = f"http://127.0.0.1:{port}"
        _await(process, f"{base}/healthz")
        yield base
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.fixture
def people(transactional_db) -> People:
    return People.make()


@pytest.fixture
def sign_in(page, server):
    """Opens the page as `user`, by a one-time link."""

    def enter(user: User):
        page.goto(f"{server}/sign-in/{SignInLink.issue(user)}/")
        return page

    return enter


@pytest.fixture(autouse=True)
def no_errors_in_the_page(request):
    """A script that fails, or a policy that refuses something, fails the test."""
    if "page" not in request.fixturenames:
        yield
        return
    page = request.getfixturevalue("page")
    said: list[str] = []
    page.on("pageerror", lambda error: said.append(str(error)))
    # Refusals, requests that a test aborts, and a network that it takes away.
    provoked = ("the server responded with a status of 4", "net::ERR_FAILED", "net::ERR_INTERNET_DISCONNECTED")
    page.on(
        "console", lambda message: said.append(message.text) if message.type == "error" and not any(p in message.text for p in provoked) else None
    )
    yield
    assert not said


def _database_url() -> str:
    from django.db import connection

    database = connection.settings_dict
    login = quote(database["USER"]) + (f":{quote(database['PASSWORD'])}" if database.get("PASSWORD") else "")
    if str(database["HOST"]).startswith("/"):
        return f"postgresql://{login}@/{database['NAME']}?host={quote(str(database['HOST']), safe='')}"
    return f"postgresql://{login}@{database['HOST'] or 'localhost'}:{database['PORT'] or 5432}/{database['NAME']}"


def _await(process: subprocess.Popen, url: str) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            assert process.poll() is None, "Daphne ended before it served a page"
            assert time.monotonic() < deadline, "Daphne does not answer"
            time.sleep(0.1)
