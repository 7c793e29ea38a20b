"""A verifier on another host needs only Postgres: the only link of its network namespace leads to a namespace that contains only Postgres.

There are three hosts: this one with the web process and the orchestrator, one with Postgres, and one with the verifier. No host forwards packets, so
the third one can reach only Postgres's TCP port.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid

import psycopg
import pytest

from tests.integration.processes.stack import Stack, children, free_port
from tests.integration.processes.test_kills import WRONG, finished, start_run, verdict
from webapp.environment import ROOT
from webapp.supervisor.postgres import PostgresError, as_unprivileged, binaries

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
PASSWORD = "a-secret-of-the-other-host"


def ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError(done.stderr.strip() or f"ip {arguments[0]} failed")


class Hosts:
    """The namespaces `database` and `verifier` with their links: web -- database -- verifier."""

    def __init__(self) -> None:
        mark = uuid.uuid4().hex[:6]
        self.database, self.verifier = f"stitch-db-{mark}", f"stitch-gpu-{mark}"
        net = 16 + uuid.uuid4().int % 200
        self.near, self.db_near = f"10.213.{net}.1", f"10.213.{net}.2"  # between web and database
        self.db_far, self.far = f"10.214.{net}.1", f"10.214.{net}.2"  # between database and verifier
        for name in (self.database, self.verifier):
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("link", "add", f"st{mark}a", "type", "veth", "peer", "name", f"st{mark}b", "netns", self.database)
        ip("-n", self.database, "link", "add", f"st{mark}c", "type", "veth", "peer", "name", f"st{mark}d", "netns", self.verifier)
        ip("addr", "add", f"{self.near}/24", "dev", f"st{mark}a")
        ip("link", "set", f"st{mark}a", "up")
        for name, device, address in (
            (self.database, f"st{mark}b", self.db_near),
            (self.database, f"st{mark}c", self.db_far),
            (self.verifier, f"st{mark}d", self.far),
        ):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", device)
            ip("-n", name, "link", "set", device, "up")

    def inside(self, name: str) -> list[str]:
        """Returns a prefix for commands. `ip netns exec` is not used because it hides the control groups."""
        return ["nsenter", f"--net=/run/netns/{name}", "--"]

    def remove(self) -> None:
        for name in (self.verifier, self.database):
            with contextlib.suppress(OSError):
                ip("netns", "del", name)


@pytest.fixture(scope="module")
def hosts():
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("nsenter"):
        pytest.skip("network namespaces need root, ip and nsenter")
    made = None
    try:
        made = Hosts()
    except OSError as error:
        pytest.skip(f"this host does not allow network namespaces: {error}")
    yield made
    made.remove()


@pytest.fixture(scope="module")
def urls(hosts, tmp_path_factory):
    """Runs Postgres on a separate host. Returns its URLs as seen by web and by the verifier."""
    try:
        programs, prefix = binaries(18), as_unprivileged()
    except PostgresError as error:
        pytest.skip(str(error))
    folder, port = tmp_path_factory.mktemp("pg"), free_port()
    (folder / "password").write_text(PASSWORD)
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
    initdb = [str(programs / "initdb"), "-D", str(folder / "data"), "-U", "tester", "--auth=scram-sha-256", f"--pwfile={folder / 'password'}"]
    subprocess.run([*prefix, *initdb], env=environment, check=True, capture_output=True)
    with (folder / "data" / "pg_hba.conf").open("a") as rules:
        rules.write("host all all 10.213.0.0/16 scram-sha-256\nhost all all 10.214.0.0/16 scram-sha-256\n")
    listen = f"{hosts.db_near},{hosts.db_far}"
    postgres = [str(programs / "postgres"), "-D", str(folder / "data"), "-h", listen, "-p", str(port), "-k", ""]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen([*hosts.inside(hosts.database), *prefix, *postgres], env=environment, stdout=log, stderr=subprocess.STDOUT)
    base = f"postgresql://tester:{PASSWORD}@{{}}:{port}"
    for _ in range(600):
        try:
            with psycopg.connect(base.format(hosts.db_near) + "/postgres", autocommit=True, connect_timeout=5) as connection:
                connection.execute("CREATE DATABASE apart")
            break
        except psycopg.OperationalError:
            assert server.poll() is None, (folder / "log").read_text()
            time.sleep(0.1)
    yield base.format(hosts.db_near) + "/apart", base.format(hosts.db_far) + "/apart"
    server.terminate()
    server.wait(30)


@pytest.fixture
def web(urls, tmp_path):
    stack = Stack(tmp_path / "web", DATABASE_URL=urls[0]).start("--only", "web", "orchestrator")
    yield stack
    stack.stop()


@pytest.fixture
def far_verifier(hosts, urls, web, tmp_path):
    """Runs `manage.py verifier` on the third host with its own data directory, after the web process has created the tables."""
    data = tmp_path / "far"
    kept = {name: value for name, value in os.environ.items() if name not in ("DJANGO_SETTINGS_MODULE", "DATA_DIR", "PORT", "DATABASE_URL")}
    environment = kept | {"DATABASE_URL": urls[1], "DATA_DIR": str(data)}
    log = (tmp_path / "far.log").open("wb")
    process = subprocess.Popen(
        [*hosts.inside(hosts.verifier), sys.executable, str(ROOT / "manage.py"), "verifier", "--device", "cpu"],
        env=environment, stdout=log, stderr=subprocess.STDOUT, cwd="/",
    )  # fmt: skip
    yield process, data, tmp_path / "far.log"
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(60)
    finally:
        process.kill()
        log.close()


REACH = """
import json, socket, sys
reached = []
for host in json.loads(sys.argv[1]):
    for port in json.loads(sys.argv[2]):
        with socket.socket() as attempt:
            attempt.settimeout(3)
            try:
                attempt.connect((host, port))
                reached.append([host, port])
            except OSError:
                pass
print(json.dumps(reached))
"""


def test_a_verifier_elsewhere_needs_only_postgres(hosts, urls, web, far_verifier, tmp_path):
    process, data, log = far_verifier
    # From there, only a single port responds on this host and on Postgres's host.
    port = int(urls[1].rsplit(":", 1)[1].partition("/")[0])
    places = [hosts.db_far, hosts.db_near, hosts.near, "127.0.0.1"]
    asked = [sys.executable, "-c", REACH, json.dumps(places), json.dumps([port, web.port, 22, 80, 111])]
    reached = json.loads(subprocess.run([*hosts.inside(hosts.verifier), *asked], capture_output=True, text=True, timeout=120).stdout)
    assert [hosts.db_far, port] in reached
    assert {number for _, number in reached} == {port} and not {host for host, _ in reached} & {hosts.near, "127.0.0.1"}

    def announced() -> list[tuple]:
        assert process.poll() is None, log.read_text()
        return web.query("SELECT id FROM fleet_device WHERE device = 'cpu'")

    ((device,),) = web.await_true(announced, f"the verifier's announcement: {log.read_text()[-2000:]}")
    person = web.browser()
    run = start_run(person, "far away", WRONG)
    events = finished(web, person, run, [])
    assert verdict(events)["status"] == "wrong_result"
    rows = web.query("SELECT status, device_id, result_id IS NOT NULL FROM runs_verification WHERE run_id = %s AND kind = 'verify'", run)
    assert rows == [("wrong_result", device, True)]
    assert any(event["kind"] == "verification.stage" and event["payload"]["stage"] == "correctness" for event in events)
    # It wrote only to its own data directory, and the web process's directory shows no trace of a verification.
    assert (data / "verifier" / "builds").is_dir()
    assert not (web.data / "verifier" / "builds").exists()
    assert PASSWORD not in log.read_text()
    assert children(process.pid)  # the judge is still there for the next job
