"""Creates the data directory of an installation that has already been started, once for all tests (tests/kept_folders.py)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests import kept_folders
from webapp.environment import ROOT, private_dir
from webapp.supervisor.postgres import EmbeddedPostgres

MIGRATED = "migrated"  # a database with all tables, all of them empty
MADE_FROM = ("requirements.txt", "examples", "tests/kept_folders.py", "tests/installation.py", "webapp/supervisor/postgres.py")


def data_directory(place: Path) -> Path:
    """Makes a copy for the caller at `place`, which must not exist yet."""
    return kept_folders.copy(_kept(), place)


@pytest.fixture(scope="session", name="django_db_modify_db_settings")
def prepared_database() -> Iterator[None]:
    """Chooses the server before pytest-django creates the test database: if DATABASE_URL is set, its server is used unchanged; otherwise, an embedded
    Postgres starts, whose test database is a copy of the migrated one and runs no migrations of its own."""
    if os.environ.get("DATABASE_URL"):
        yield
        return
    from django.conf import settings
    from django.db import connection, connections

    postgres = EmbeddedPostgres(settings.DATA_DIR)
    kept_folders.copy(_kept() / postgres.cluster.name, postgres.cluster)
    postgres.start()
    connection.settings_dict["TEST"]["TEMPLATE"] = MIGRATED
    yield
    connections.close_all()
    for known in connections.all():
        known.close_pool()
    postgres.stop()


def _kept() -> Path:
    made_from = [*(ROOT / "webapp").glob("*/migrations"), *(ROOT / name for name in MADE_FROM)]
    return kept_folders.kept("data", made_from, _make)


def _make(folder: Path) -> None:
    """Migrates once. The tests kill processes but never the machine, so no write needs to reach the disk."""
    private_dir(folder)
    postgres = EmbeddedPostgres(folder)
    postgres.start()
    try:
        with psycopg.connect(postgres.url("postgres"), autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET fsync = off")
            connection.execute("SELECT pg_reload_conf()")
            _manage(folder, postgres.url(), "migrate", "--verbosity", "0")
            connection.execute(f"CREATE DATABASE {MIGRATED} TEMPLATE {postgres.url().rpartition('/')[2].partition('?')[0]}")
        _manage(folder, postgres.url(), "prepare")
    finally:
        postgres.stop()


def _manage(data: Path, url: str, *arguments: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("DJANGO_SETTINGS_MODULE", "PORT")}
    environment |= {"DATA_DIR": str(data), "DATABASE_URL": url}
    done = subprocess.run([sys.executable, str(ROOT / "manage.py"), *arguments], env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
