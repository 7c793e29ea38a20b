"""A Daphne process that serves the test database: for browsers, and for any other client that uses a real socket."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote

from webapp.environment import ROOT

READY_SECONDS = 60
AT_REST_SECONDS = 0.2


@contextmanager
def daphne(**settings: str) -> Iterator[str]:
    """Yields the server's base URL; `settings` are environment variables. Enter it once the test database exists (fixture `django_db_setup`)."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = os.environ | {"DATABASE_URL": database_url(), "DJANGO_SETTINGS_MODULE": "tests.settings", "PORT": str(port), "DATABASE_POOL": "8"}
    environment |= settings
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


def database_url() -> str:
    from django.db import connection

    database = connection.settings_dict
    login = quote(database["USER"]) + (f":{quote(database['PASSWORD'])}" if database.get("PASSWORD") else "")
    if str(database["HOST"]).startswith("/"):
        return f"postgresql://{login}@/{database['NAME']}?host={quote(str(database['HOST']), safe='')}"
    return f"postgresql://{login}@{database['HOST'] or 'localhost'}:{database['PORT'] or 5432}/{database['NAME']}"


def until_at_rest(seconds: float = 10) -> None:
    """Waits until no other connection to the test database has executed a statement or held a transaction open for `AT_REST_SECONDS`.

    A server may still be answering requests from pages that have been closed. The flush after a test locks all tables one after another, and a query
    that joins several also locks them in turn: the two can deadlock, and Postgres then aborts one of them. If there is no such pause within
    `seconds`, the flush proceeds regardless.
    """
    from django.db import connection

    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
                " AND backend_type = 'client backend' AND (state <> 'idle' OR state_change > clock_timestamp() - make_interval(secs => %s))",
                [AT_REST_SECONDS],
            )
            if not cursor.fetchone()[0]:
                return
        time.sleep(AT_REST_SECONDS / 4)


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
