"""An external Postgres, given by DATABASE_URL: version 16 from the wheel plays this role, started separately and reached over TCP with a password."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time

import psycopg
import pytest

from tests.integration.processes.stack import Stack, free_port
from tests.integration.processes.test_kills import WRONG, finished, start_run, verdict
from webapp.environment import ROOT
from webapp.supervisor.postgres import PostgresError, as_unprivileged, binaries

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    try:
        programs, prefix = binaries(16), as_unprivileged()
    except PostgresError as error:
        pytest.skip(str(error))
    folder, port = tmp_path_factory.mktemp("pg16"), free_port()
    (folder / "password").write_text("a secret that is planted")
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
    initdb = [
        *prefix,
        str(programs / "initdb"),
        "-D",
        str(folder / "data"),
        "-U",
        "tester",
        "--auth=scram-sha-256",
        f"--pwfile={folder / 'password'}",
    ]
    subprocess.run(initdb, env=environment, check=True, capture_output=True)
    server = subprocess.Popen(
        [*prefix, str(programs / "postgres"), "-D", str(folder / "data"), "-h", "127.0.0.1", "-p", str(port), "-k", ""],
        env=environment, stdout=(folder / "log").open("wb"), stderr=subprocess.STDOUT,
    )  # fmt: skip
    base = f"postgresql://tester:a%20secret%20that%20is%20planted@127.0.0.1:{port}"
    for _ in range(600):
        try:
            with psycopg.connect(f"{base}/postgres", autocommit=True, connect_timeout=5) as connection:
                connection.execute("CREATE DATABASE elsewhere")
            break
        except psycopg.OperationalError:
            assert server.poll() is None, (folder / "log").read_text()
            time.sleep(0.1)
    yield f"{base}/elsewhere"
    server.terminate()
    server.wait(30)


@pytest.mark.slow
def test_everything_runs_on_it(url, tmp_path):
    stack = Stack(tmp_path / "data", DATABASE_URL=url).start()
    try:
        person = stack.browser()
        run = start_run(person, "elsewhere", WRONG)
        assert verdict(finished(stack, person, run, []))["status"] == "wrong_result"
        assert stack.query("SHOW server_version")[0][0].startswith("16.")
        assert not (stack.data / "pg").exists()
        for log in (stack.data / "log").glob("*.log"):
            assert "secret that is planted" not in log.read_text(), log.name
    finally:
        stack.stop()


@pytest.mark.slow
def test_a_server_that_is_not_there_is_named(tmp_path):
    environment = os.environ | {
        "DATABASE_URL": f"postgresql://nobody@127.0.0.1:{free_port()}/nothing",
        "DATA_DIR": str(tmp_path),
        "PORT": str(free_port()),
    }
    environment.pop("DJANGO_SETTINGS_MODULE", None)
    done = subprocess.run([sys.executable, "-m", "webapp.supervisor"], env=environment, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and re.search("database cannot be reached", done.stderr) and "ready" not in done.stdout
    assert "Traceback" not in done.stderr
