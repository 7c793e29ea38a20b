"""Tests databases of earlier versions (tests/data/database-*): after migration, their pages open, and their runs replay and export as before."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import psycopg
import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import connection

from tests.older import KEPT, Older, client_of, exported
from webapp.runs.headline import headline_of
from webapp.runs.models import Candidate, Event, Run
from webapp.runs.trace.projection import rebuild
from webapp.supervisor.postgres import PostgresError, binaries

# The fields that are determined by a run's events alone.
PROJECTED = ("state", "outcome", "reason", "best_candidate", "speedup", "headline", "gain", "spent", "last_seq", "started_at", "finished_at")
NAME = "older"


@pytest.fixture(params=sorted(KEPT.glob("database-*.tar.xz")), ids=lambda path: path.name)
def older(request, django_db_setup, django_db_blocker):
    """Puts an earlier version's database in place of the test database and migrates it as `make run` does."""
    try:
        psql = binaries() / "psql"
    except PostgresError as error:
        pytest.skip(str(error))
    kept: Older = Older.read(request.param)
    with django_db_blocker.unblock():
        usual = connection.settings_dict["NAME"]
        connection.close()
        connection.close_pool()
        _on_the_server(f"DROP DATABASE IF EXISTS {NAME}", f"CREATE DATABASE {NAME}")
        try:
            _restore(psql, kept.sql)
            connection.settings_dict["NAME"] = NAME
            call_command("migrate", verbosity=0, interactive=False)
            yield kept
        finally:
            connection.close()
            connection.close_pool()
            connection.settings_dict["NAME"] = usual
            _on_the_server(f"DROP DATABASE IF EXISTS {NAME} WITH (FORCE)")


def _server() -> dict[str, str]:
    names = {"host": "HOST", "port": "PORT", "user": "USER", "password": "PASSWORD"}
    return {name: str(connection.settings_dict[key]) for name, key in names.items() if connection.settings_dict[key]}


def _on_the_server(*statements: str) -> None:
    with psycopg.connect(**_server(), dbname="postgres", autocommit=True) as server:
        for statement in statements:
            server.execute(statement.encode())


def _restore(psql: Path, sql: bytes) -> None:
    server = {f"PG{name.upper()}": value for name, value in _server().items()}
    command = [str(psql), "--no-psqlrc", "--quiet", "-v", "ON_ERROR_STOP=1", "-d", NAME]
    done = subprocess.run(command, env=dict(os.environ) | server, input=sql, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


def _rows(run_id: str) -> list[dict[str, object]]:
    candidates = Candidate.objects.filter(run=run_id).order_by("number").values("number", "sha", "strategy", "verdict", "verification__status")
    return [*Run.objects.filter(pk=run_id).values(*PROJECTED), *candidates]


def test_migrated_runs_are_listed_by_their_headline(older: Older):
    runs = list(Run.objects.filter(state="finished"))
    found = {run.pk: headline_of(run) for run in runs}
    assert {run.pk: (run.headline, run.gain) for run in runs} == {
        pk: (one.outcome, one.first and pytest.approx(one.first.ratio)) for pk, one in found.items()
    }
    assert len({run.headline for run in runs}) > 1 and not Run.objects.exclude(state="finished").exclude(headline="").exists()


def test_pages_open_and_runs_replay_and_export_as_before(older: Older, monkeypatch):
    monkeypatch.setattr(settings, "ALLOWED_HOSTS", ["testserver"])
    client = client_of(older.reader)
    found = {path: client.get(path).status_code for path in older.pages}
    assert {path: (status, older.pages[path]) for path, status in found.items() if status not in (200, 301, 302)} == {}
    assert len(found) > 90
    for run_id, sha in older.exports.items():
        run = Run.objects.get(pk=run_id)
        assert Event.objects.filter(run=run).count() == run.last_seq > 20
        before = _rows(run_id)
        rebuild(run.pk)
        assert _rows(run_id) == before
        assert exported(run_id) == sha
