"""Tests the web process during a restart of the database: the live page continues, and pages respond as soon as the database does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.integration.processes.stack import Browser, Stack, descendants, prepared
from webapp.environment import ROOT

MAKE = "import json; from tests.unit.webapp.cast import make_run; from webapp.accounts.models import User; print(make_run(User.objects.get()).pk)"
AWAY_SECONDS = 8.0  # longer than a pool waits for a connection before it starts to retry at increasing intervals
BACK_SECONDS = 15.0  # on a busy machine; the hang that this test guards against lasted for minutes


pytestmark = pytest.mark.xdist_group("database restart")


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    """Starts an installation with the web process only: the other processes would query the database unprompted."""
    own = Stack(prepared(tmp_path_factory.mktemp("restarted") / "data")).start("--only", "web")
    yield own
    own.stop()


class Viewer(threading.Thread):
    """Behaves like the page's connection: opens at its cursor, acknowledges, and reopens if the connection breaks."""

    def __init__(self, browser: Browser, run: str):
        super().__init__(daemon=True)
        self.url = browser.stack.base.replace("http", "ws", 1) + f"/ws/runs/{run}/"
        self.headers = {"Cookie": "; ".join(f"{cookie.name}={cookie.value}" for cookie in browser.jar)}
        self.origin = browser.stack.base
        self.seen: list[int] = []
        self.ended = False

    def run(self) -> None:
        while not self.ended:
            with suppress(ConnectionClosed, OSError, TimeoutError):
                self.watch()
            time.sleep(0.3)

    def watch(self) -> None:
        with connect(self.url, additional_headers=self.headers, origin=self.origin, proxy=None, open_timeout=5) as socket:
            socket.send(json.dumps({"type": "open", "since": len(self.seen)}))
            while not self.ended:
                with suppress(TimeoutError):
                    frame = json.loads(socket.recv(timeout=0.5))
                    self.seen += [event["seq"] for event in frame["events"]]
                    socket.send(json.dumps({"type": "ack", "seq": frame["last"]}))


def new_run(stack: Stack) -> str:
    command = [sys.executable, "manage.py", "shell", "--no-imports", "-c", MAKE]
    done = subprocess.run(command, cwd=ROOT, env=stack.environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return str(uuid.UUID(done.stdout.strip().splitlines()[-1]))


def note(stack: Stack, run: str) -> None:
    event = {"span": "", "parent": "", "agent": "person", "kind": "note.added", "payload": {"text": "a note"}}
    stack.query("SELECT seq FROM stitchwork_append(%s, NULL, %s::json)", run, json.dumps([event]))


def postmaster(stack: Stack) -> int:
    return next(pid for pid in descendants(stack.process.pid) if os.path.basename(os.path.realpath(f"/proc/{pid}/exe")) == "postgres")


@pytest.mark.slow
@pytest.mark.parametrize("away", [0.0, AWAY_SECONDS])
def test_the_live_page_goes_on_after_the_database_was_away(stack, away):
    browser = stack.browser()
    run = new_run(stack)
    viewers = [Viewer(browser, run) for _ in range(3)]
    for viewer in viewers:
        viewer.start()
    note(stack, run)
    stack.await_true(lambda: all(viewer.seen == [1] for viewer in viewers), "the first note on all pages")
    if away:
        os.kill(stack.process.pid, signal.SIGSTOP)  # so that it restarts nothing in the meantime
    os.kill(postmaster(stack), signal.SIGKILL)
    asking = [threading.Thread(target=lambda: _answers(browser), daemon=True) for _ in range(20)]
    for thread in asking:
        thread.start()
    time.sleep(away)
    os.kill(stack.process.pid, signal.SIGCONT)
    stack.await_true(lambda: _wrote(stack, run), "the database's return")
    begun = time.monotonic()
    stack.await_true(lambda: _answers(browser), "a page after the database's return")
    stack.await_true(lambda: all(viewer.seen == [1, 2] for viewer in viewers), "the note that came after")
    spent = time.monotonic() - begun
    for viewer in viewers:
        viewer.ended = True
    print(f"away {away} s: back after {spent:.1f} s")
    assert spent < BACK_SECONDS + away


@pytest.mark.slow
def test_every_page_says_that_the_database_is_away(stack):
    browser = stack.browser()
    run = new_run(stack)
    os.kill(stack.process.pid, signal.SIGSTOP)  # so that it restarts nothing in the meantime
    os.kill(postmaster(stack), signal.SIGKILL)
    pages = ["/", "/runs/", f"/runs/{run}/", "/submit/", "/tasks/", "/leaderboard/", "/devices/", "/account/", "/review/", "/compare/"]
    with ThreadPoolExecutor(len(pages)) as threads:
        answers = dict(zip(pages, threads.map(lambda page: _refusal(browser, page), pages), strict=True))
    os.kill(stack.process.pid, signal.SIGCONT)
    assert {page: (status, retry) for page, (status, retry, _) in answers.items()} == dict.fromkeys(pages, (503, "5"))
    assert all("The database does not answer." in text and "<h1>" in text for _, _, text in answers.values())
    assert "SynchronousOnlyOperation" not in stack.logs()
    stack.await_true(lambda: _answers(browser), "a page after the database's return")


def _refusal(browser: Browser, page: str) -> tuple[int, str, str]:
    try:
        browser.get(page)
    except urllib.error.HTTPError as error:
        return error.code, error.headers.get("Retry-After", ""), error.read().decode()
    return 200, "", ""


def _wrote(stack: Stack, run: str) -> bool:
    try:
        note(stack, run)
    except Exception:
        return False
    return True


def _answers(browser: Browser) -> bool:
    try:
        return "Stitchwork" in browser.get("/")
    except OSError:
        return False
