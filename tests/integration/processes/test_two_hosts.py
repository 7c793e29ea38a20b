"""Follows docs/how-to/two-hosts.md as literally as one machine allows: its commands, with this machine's names and ports in place of the page's.

The GPU host is a second data directory, and its device is the CPU. Postgres is Debian's if that is installed, and the wheel's otherwise.
"""

from __future__ import annotations

import html
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.integration.processes.stack import PATIENCE, Browser, Stack, free_port
from tests.integration.processes.test_kills import WRONG, finished, start_run, verdict
from webapp.environment import ROOT
from webapp.supervisor.postgres import PostgresError, as_unprivileged, binaries

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
PAGE = (ROOT / "docs/how-to/two-hosts.md").read_text()
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", PAGE, re.DOTALL)
DEBIAN = Path("/usr/lib/postgresql")


def blocks(language: str) -> list[str]:
    return [text for known, text in BLOCKS if known == language]


def programs() -> Path:
    found = sorted(DEBIAN.glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return found[-1].parent if found else binaries(16)


@pytest.fixture
def postgres(tmp_path_factory) -> Iterator[tuple[int, str]]:
    """Yields a separate server on which step 1 has been carried out: its port, and the administrator's URL without a database name."""
    try:
        where, prefix = programs(), as_unprivileged()
    except PostgresError as error:
        pytest.skip(str(error))
    folder, port = tmp_path_factory.mktemp("postgres"), free_port()
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
    (folder / "password").write_text("administrator")
    initdb = [str(where / "initdb"), "-D", str(folder / "data"), "-U", "postgres", "--auth=scram-sha-256", f"--pwfile={folder / 'password'}"]
    subprocess.run([*prefix, *initdb], env=environment, check=True, capture_output=True)
    with (folder / "data" / "pg_hba.conf").open("a") as rules:
        rules.write(blocks("")[0].replace("192.0.2.0/24", "127.0.0.0/8"))
    command = [str(where / "postgres"), "-D", str(folder / "data"), "-h", "127.0.0.1", "-p", str(port), "-k", ""]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen([*prefix, *command], env=environment, stdout=log, stderr=subprocess.STDOUT)
    admin = f"postgresql://postgres:administrator@127.0.0.1:{port}"
    for _ in range(600):
        try:
            with psycopg.connect(f"{admin}/postgres", autocommit=True, connect_timeout=5) as connection:
                for statement in filter(str.strip, blocks("sql")[0].split(";")):
                    connection.execute(statement)
            break
        except psycopg.OperationalError:
            assert server.poll() is None, (folder / "log").read_text()
            time.sleep(0.1)
    yield port, admin
    server.send_signal(signal.SIGINT)
    server.wait(30)


class Host:
    """A shell on one of the hosts, with a separate data directory and without the variables that configure this machine's installation."""

    def __init__(self, data: Path, names: dict[str, str]):
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("DATABASE", "DJANGO", "STITCHWORK", "PORT", "BASE_URL"))}
        self.environment = kept | {"DATA_DIR": str(data)}
        self.data, self.names = data, names
        self.log = data.parent / f"{data.name}.log"

    def said(self, block: str) -> str:
        for name, here in self.names.items():
            block = block.replace(name, here)
        return block

    def start(self, *parts: str, **environment: str) -> subprocess.Popen:
        """Runs the blocks' commands in one shell. The last command keeps running."""
        *before, last = "".join(map(self.said, parts)).rstrip("\n").split("\n")
        with self.log.open("ab") as log:
            script = "\n".join([*before, f"exec {last}"])
            return subprocess.Popen(["bash", "-ec", script], env=self.environment | environment, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)

    def said_so_far(self) -> str:
        return self.log.read_text(errors="replace")[-3000:] if self.log.exists() else ""

    def run(self, *parts: str) -> str:
        done = subprocess.run(
            ["bash", "-ec", "".join(map(self.said, parts))], env=self.environment, cwd=ROOT, capture_output=True, text=True, timeout=180
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


def test_the_page_is_followed_to_a_verdict(postgres, tmp_path):
    exports_and_start, login, doctor, connect, again = blocks("sh")
    port, admin = postgres
    web = free_port()
    names = {
        "pages.example:5432": f"127.0.0.1:{port}",
        "pages.example:8000": f"127.0.0.1:{web}",
        "pages.example": "127.0.0.1",
        "0.0.0.0": "127.0.0.1",
    }
    pages, gpu = Host(tmp_path / "pages", names), Host(tmp_path / "gpu", names)
    pages.environment |= {"PORT": str(web)}
    exports = "".join(line for line in exports_and_start.splitlines(keepends=True) if line.startswith("export "))
    running = [pages.start(exports_and_start)]
    stack = Stack(tmp_path / "pages", DATABASE_URL=f"{admin}/stitchwork")  # used to inspect the effects of the page's commands
    stack.port, stack.base = web, f"http://127.0.0.1:{web}"
    try:
        stack.link = stack.await_true(lambda: re.search(r"ready: (\S+)", pages.log.read_text()), f"ready: {pages.log.read_text()}")[1]
        url = pages.run(exports, login).strip()
        assert url.startswith("postgresql://stitchwork_verifier:")
        assert "choose-a-password" not in url
        assert gpu.run(doctor)

        person = Browser(stack)
        page = person.get("/devices/connect/")
        command = html.unescape(re.search(r'id="connect-command">([^<]+)<', page)[1])
        assert command.split()[:-1] == gpu.said(connect).split()[:-1], "what the page shows is what the document says"
        running.append(gpu.start(command, STITCHWORK_DEVICES="cpu"))
        online = stack.await_true(lambda: stack.query("SELECT id FROM fleet_device WHERE device = 'cpu'"), "the device")
        assert (gpu.data / "database" / "url").read_text() == url
        run = start_run(person, "two hosts", WRONG)
        assert verdict(finished(stack, person, run, []))["status"] == "wrong_result"

        former = running.pop()
        former.send_signal(signal.SIGTERM)
        former.wait(PATIENCE)  # its data directory is not free until then
        stack.await_true(lambda: stack.query("SELECT 1 FROM fleet_device WHERE heartbeat_at < now() - interval '30 minutes'"), "a clean end")
        running.append(gpu.start(again, STITCHWORK_DEVICES="cpu"))
        stack.await_true(lambda: stack.query("SELECT 1 FROM fleet_device WHERE heartbeat_at > now() - interval '10 seconds'"), "the device again")
        assert stack.query("SELECT id FROM fleet_device") == online, "the same host is the same device"
        assert url.split(":")[2].split("@")[0] not in gpu.log.read_text() + pages.log.read_text()
    except AssertionError as error:
        error.add_note(f"== the pages' host\n{pages.said_so_far()}\n== the GPU host\n{gpu.said_so_far()}")
        raise
    finally:
        for process in running:
            process.send_signal(signal.SIGTERM)
        for process in running:
            process.wait(60)
