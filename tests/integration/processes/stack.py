"""A whole installation for a test, with its own data directory, port, database and processes."""

from __future__ import annotations

import http.cookiejar
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

from tests.installation import data_directory
from webapp.environment import ROOT
from webapp.supervisor.postgres import EmbeddedPostgres

PATIENCE = 180.0  # timeout in seconds for each step on a busy machine; these tests do not measure time
REFUSED = "ERROR:  permission denied"


class Stack:
    def __init__(self, data: Path, **environment: str):
        self.data = data
        self.port = free_port()
        self.base = f"http://127.0.0.1:{self.port}"
        kept = {name: value for name, value in os.environ.items() if name not in ("DJANGO_SETTINGS_MODULE", "DATA_DIR", "PORT")}
        self.environment = kept | {"STITCHWORK_DEVICES": "cpu", "DATA_DIR": str(data), "PORT": str(self.port)} | environment
        self.process: subprocess.Popen[str] | None = None
        self.link = ""

    def start(self, *arguments: str) -> Stack:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "webapp.supervisor", *arguments],
            env=self.environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=(self.data.parent / "supervisor.err").open("ab"), text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.fullmatch(r"ready: (\S+)\n", line)
        assert found, f"said {line!r} and: {(self.data.parent / 'supervisor.err').read_text()[-3000:]}"
        self.link = found[1]
        return self

    def stop(self, by: signal.Signals = signal.SIGTERM) -> None:
        if self.process is not None:
            self.process.send_signal(by)
            self.process.wait(60)
            self.process.stdout.close()
            self.process = None
        # No process may have attempted anything that its role forbids (webapp/roles.py).
        log = self.data / "log" / "postgres.log"
        refused = [line for line in log.read_text(errors="replace").splitlines() if REFUSED in line] if log.exists() else []
        assert not refused, refused[:5]

    def query(self, statement: str, *arguments: Any) -> list[tuple]:
        url = self.environment.get("DATABASE_URL") or EmbeddedPostgres(self.data).url()
        with psycopg.connect(url, autocommit=True, connect_timeout=10) as connection:
            cursor = connection.execute(statement, arguments)
            return cursor.fetchall() if cursor.description else []

    def manage(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, str(ROOT / "manage.py"), *arguments], env=self.environment, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def browser(self) -> Browser:
        return Browser(self)

    def take_link(self) -> str:
        """Returns an unused sign-in link: either the one printed at the start or a new one."""
        link, self.link = self.link, ""
        return link or self.manage("signin_link").strip()

    def process_of(self, name: str) -> int:
        """Returns the pid of "web", "orchestrator" or "verifier"."""
        words = {"web": "daphne", "orchestrator": "orchestrator", "verifier": "verifier"}[name]
        (pid,) = [pid for pid in children(self.process.pid) if words in command_of(pid).split("\0")]
        return pid

    def parties(self) -> list[int]:
        """Returns the processes that run untrusted code, or are about to."""
        return [
            pid
            for pid in descendants(self.process_of("verifier"))
            if "verifier.parties.party" in command_of(pid) and not command_of(pid).startswith("/usr/bin/bwrap")
        ]

    def logs(self) -> str:
        return "\n".join(f"== {path.name}\n{path.read_text(errors='replace')[-3000:]}" for path in sorted((self.data / "log").glob("*.log")))

    def await_true(self, condition: Callable[[], Any], what: str) -> Any:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if value := condition():
                return value
            time.sleep(0.1)
        raise AssertionError(f"{what} did not come to pass\n{self.logs()}")


class Browser:
    """A user whose browser runs no scripts, signed in with the one-time link."""

    def __init__(self, stack: Stack):
        self.stack = stack
        self.jar = http.cookiejar.CookieJar()
        self.opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(self.jar))
        self.get(urllib.parse.urlsplit(stack.take_link()).path)

    def get(self, path: str) -> str:
        with self.opener.open(self.stack.base + path, timeout=30) as answer:
            return answer.read().decode()

    def post(self, path: str, **fields: str) -> str:
        token = next(cookie.value for cookie in self.jar if cookie.name.startswith("stitchwork_csrf"))
        request = urllib.request.Request(
            self.stack.base + path, urllib.parse.urlencode(fields | {"csrfmiddlewaretoken": token}).encode(), {"Referer": self.stack.base + path}
        )
        with self.opener.open(request, timeout=30) as answer:
            self.url = answer.url
            return answer.read().decode()

    def submit(self, path: str, **fields: str) -> str:
        """Starts a run through a page's form and returns the run's id."""
        self.get(path)
        self.post(path, **fields)
        found = re.search(r"/runs/([0-9a-f-]{36})/", self.url)
        assert found, f"was sent to {self.url}"
        return found[1]

    def events(self, run: str, since: int = 0) -> list[dict]:
        return json.loads(self.get(f"/runs/{run}/events?since={since}&limit=500"))["events"]


def prepared(data: Path) -> Path:
    """Creates the data directory `data` in the state of an installation that has been started before, by copying one that was prepared once for all
    these tests. test_life.py tests a start with an empty directory."""
    return data if os.environ.get("DATABASE_URL") else data_directory(data)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def command_of(pid: int) -> str:
    """Returns the arguments, separated by NUL; "" if the process is gone or a zombie."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return ""


def parents() -> dict[int, int]:
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text(errors="replace")
        except OSError:
            continue
        state, parent = text.rpartition(")")[2].split()[:2]
        if state != "Z":
            found[int(path.parent.name)] = int(parent)
    return found


def children(pid: int) -> list[int]:
    return [child for child, parent in parents().items() if parent == pid]


def descendants(pid: int) -> list[int]:
    family, tree = {pid}, parents()
    grew = True
    while grew:
        more = {child for child, parent in tree.items() if parent in family} - family
        grew, family = bool(more), family | more
    return sorted(family - {pid})


def alive(pids: list[int]) -> list[int]:
    known = parents()
    return [pid for pid in pids if pid in known]
