"""Starts and stops an installation: it prints only one line, leaves no process running and loses no data."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest

from tests.integration.processes.stack import Stack, alive, descendants, prepared
from tests.integration.processes.test_kills import finished, shown, start_run
from webapp.environment import ROOT

pytestmark = pytest.mark.timeout(600)


def installation(data: Path) -> Iterator[Stack]:
    stack = Stack(data)
    yield stack
    if stack.process is not None:
        stack.process.kill()


@pytest.fixture
def own(tmp_path):
    yield from installation(prepared(tmp_path / "a directory with spaces"))


@pytest.fixture
def new(tmp_path):
    """Yields an installation that has never been started."""
    yield from installation(tmp_path / "a directory with spaces")


@pytest.mark.parametrize(
    "by", [signal.SIGINT, *(pytest.param(s, marks=pytest.mark.slow) for s in (signal.SIGTERM, signal.SIGKILL))], ids=lambda s: s.name
)
def test_nothing_is_left_running(own, by):
    own.start()
    family = descendants(own.process.pid)
    assert len(family) >= 4
    own.stop(by)
    own.await_true(lambda: not alive(family), "the end of every process")
    assert not (own.data / "pg" / "postmaster.pid").exists()


@pytest.mark.slow
def test_a_stop_in_the_middle_of_a_run_loses_nothing(own):
    own.start()
    browser = own.browser()
    run = start_run(browser, "stopped")
    before = shown(own, browser, run, "queue")
    own.stop()
    own.start()
    events = finished(own, browser, run, before)  # the browser session continues too
    assert any(e["kind"] == "run.resumed" for e in events)


def test_the_ready_line_is_the_only_one_and_its_link_works_once(new):
    new.start()
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with opener.open(new.link) as answer:
        assert answer.url == f"{new.base}/" and b"owner" in answer.read()
    with pytest.raises(urllib.error.HTTPError, match="410"):
        urllib.request.urlopen(new.link)
    new.process.send_signal(signal.SIGTERM)
    assert new.process.stdout.read() == ""


def test_the_command_on_the_page_makes_a_link_as_it_stands(stack):
    """The command is run in a shell in which neither this installation's DATA_DIR nor its PORT is set."""
    with urllib.request.urlopen(f"{stack.base}/sign-in/") as answer:
        command = unescape(re.search(r'id="link-command">([^<]+)<', answer.read().decode())[1])
    known = {name: value for name, value in stack.environment.items() if name not in ("DATA_DIR", "PORT", "BASE_URL")}
    shell = subprocess.run(["sh", "-c", command], cwd=ROOT, env=known, capture_output=True, text=True, timeout=120)
    assert shell.returncode == 0, shell.stderr
    stack.link = ""  # the newer link makes the one printed at the start invalid, if no test has used it yet
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with opener.open(shell.stdout.strip()) as answer:
        assert answer.url == f"{stack.base}/"


def test_what_a_page_brings_can_be_kept_by_the_browser(stack, person):
    page = person.get("/")
    assets = re.findall(r'(?:href|src)="(/static/[^"]+)"', page)
    assert assets
    for path in assets:
        with urllib.request.urlopen(stack.base + path) as answer:
            assert "immutable" in answer.headers["Cache-Control"], path


@pytest.mark.slow
def test_a_second_one_on_the_same_data_is_refused(stack):
    second = Stack(stack.data)
    with pytest.raises(AssertionError, match="another Stitchwork runs"):
        second.start()
    assert alive([stack.process.pid])


@pytest.mark.slow
def test_a_dead_postgres_is_started_again(stack, person):
    (postgres,) = [pid for pid in descendants(stack.process.pid) if os.path.basename(os.path.realpath(f"/proc/{pid}/exe")) == "postgres"][:1]
    os.kill(postgres, signal.SIGKILL)

    def answers() -> bool:
        try:
            return "owner" in person.get("/")
        except OSError:
            return False

    stack.await_true(answers, "a page after the crash of the database")
