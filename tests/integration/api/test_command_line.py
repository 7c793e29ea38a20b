"""Runs the `stitchwork` command as a separate process against a real Daphne. The test plays the part of the verifier."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agents.journal import read_trace
from stitchwork.cli import main
from tests.browser import sample_run
from tests.unit.webapp.api.verified import finish
from tests.unit.webapp.cast import PROGRAM, SOURCE
from webapp.environment import ROOT
from webapp.fleet.models import Device
from webapp.review import services
from webapp.runs.models import Event, Run
from webapp.runs.trace.on_disk import import_trace

COMMAND = [sys.executable, "-m", "stitchwork"]


@pytest.fixture
def files(tmp_path) -> Path:
    (tmp_path / "task.py").write_text(SOURCE)
    (tmp_path / "mine.py").write_text(PROGRAM)
    return tmp_path


@pytest.fixture
def call(environment, files, monkeypatch, capsys):
    """Runs a command to completion in this process and returns (exit code, stdout, stderr)."""
    monkeypatch.chdir(files)
    monkeypatch.setattr("stitchwork.api.time.sleep", lambda seconds: None)

    def run(*arguments: str, stdin: str = "", **changed: str) -> tuple[int, str, str]:
        for name, value in (environment | changed).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        try:
            code = main(arguments)
        except SystemExit as ended:  # from argparse
            code = ended.code
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def begin(environment, files):
    """Starts a command that keeps running while the test does something else."""
    started: list[subprocess.Popen] = []

    def run(*arguments: str) -> subprocess.Popen:
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        # Restores Ctrl-C as a terminal does, because a shell starts background processes with it ignored.
        streams["preexec_fn"] = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
        started.append(subprocess.Popen([*COMMAND, *arguments], env=environment | {"PYTHONPATH": str(ROOT)}, cwd=files, **streams))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.communicate()


def submitted(**of) -> Run:
    """Returns the run that the command has started."""
    deadline = time.monotonic() + 60
    while not (found := Run.objects.filter(**of).first()):
        assert time.monotonic() < deadline, "nothing was submitted"
        time.sleep(0.05)
    return found


def judged(begin, *arguments: str, **of) -> tuple[int, str, str]:
    """Runs `stitchwork verify` to completion, with the test supplying this verdict."""
    process = begin("verify", "task.py", "mine.py", *arguments)
    finish(submitted(state="queued"), **of)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def test_a_program_that_passed(begin):
    code, out, err = judged(begin, "--min-speedup", "1.5")
    assert code == 0
    assert re.match(r"passed: 2\.\d\dx \[\d\.\d\d, \d\.\d\d\] vs eager on AMD EPYC .* \(full, fp32-strict\)\n", out)
    assert "program 4." in out and "evidence: http://127.0.0.1:" in out
    assert "correctness: passed" in err and "\x1b" not in out + err
    assert Run.objects.get().settings["tier"] == "full" and Run.objects.get().title == "task"


@pytest.mark.slow
def test_too_slow_is_a_failure_for_ci_and_so_is_wrong(begin):
    code, out, _ = judged(begin, "--min-speedup", "2.4")  # the point estimate is above it, but the lower bound is not
    assert code == 1 and "too slow: the lower bound" in out
    code, out, _ = judged(begin, "--tier", "quick", status="wrong_result")
    assert code == 1 and "wrong result" in out and "heavy-tailed" in out and "error 0.83, bound 1.5e-06" in out


def test_json_is_the_verdict_and_nothing_else(begin):
    code, out, _ = judged(begin, "--json", "--min-speedup", "1")
    result = json.loads(out)
    assert code == 0 and result["passed"] and result["fast_enough"] and result["comparisons"][0]["baseline"] == "eager"


@pytest.mark.slow
def test_the_host_failing_is_not_the_program_failing(begin):
    code, out, _ = judged(begin, status="infrastructure_error", trials=[])
    assert code == 2 and "infrastructure error" in out


def test_what_cannot_be_sent_is_said(call, files):
    (files / "broken.py").write_text("import torch\nx = = 1\n")
    for arguments, said in (
        (("verify", "task.py", "nothing.py"), "there is no file nothing.py"),
        (("verify", "task.py", "broken.py"), "line 2: syntax error"),
        (("verify", "task.py", "mine.py", "--device", "cuda"), "no verifier with a GPU"),
        (("follow", "softmax"), "'softmax' is not a run"),
        (("show", "00000000-0000-4000-8000-000000000000"), "no such run"),
    ):
        code, out, err = call(*arguments)
        assert code == 2 and said in err and not out, (arguments, err)
    assert call("explode")[0] == 2 and call("verify", "--tier", "some", "a", "b")[0] == 2
    assert not Run.objects.exists()


def test_a_server_that_is_not_there(call):
    code, _, err = call("runs", STITCHWORK_URL="http://127.0.0.1:9")
    assert code == 2 and "cannot be reached" in err


def test_submit_and_follow_to_the_end(begin, people):
    process = begin("submit", "task.py", "--candidates", "3", "--minutes", "9", "--title", "mine", "--follow")
    run = submitted(title="mine")
    assert (run.settings["budget"]["candidates"], run.settings["budget"]["seconds"], run.workflow) == (3, 540.0, "stitch")
    sample_run.play(run)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0 and f"/runs/{run.pk}/" in err
    for said in ("▸ Plan", "Planner", "candidate 4 from 3", "✕ candidate 1: wrong result", "✓ candidate 4: passed, 2.4", "→ optimise", "✓ improved"):
        assert said in out, said
    assert "line 39 of a long explanation" not in out and "lines more on the page" in out


def test_strangers_text_does_nothing_to_the_terminal(call, people):
    from agents.events import NewEvent
    from webapp.runs.trace.append import append

    run = sample_run.create_run(people.alice)
    text = "before\x1b]0;owned\x07\x1b[2J\u202eafter"
    append(run.pk, [NewEvent(kind="note.added", agent="person", payload={"text": text, "to": "all", "by": "eve"})])
    append(run.pk, [NewEvent(kind="run.finished", payload={"outcome": "failed", "reason": "\x1b[31mred", "best": None, "speedup": None})])
    code, out, _ = call("follow", str(run.pk))
    assert code == 1 and "before" in out and "after" in out and not re.search("[\x1b\x07\u202e]", out)


@pytest.mark.slow
def test_follow_as_json_from_a_cursor(call, people):
    run = sample_run.create_run(people.alice)
    last = sample_run.play(run)
    code, out, _ = call("follow", f"http://somewhere/runs/{run.pk}/", "--json", "--after", str(last - 2))
    assert code == 0 and [json.loads(line)["seq"] for line in out.splitlines()] == [last - 1, last]


def test_ctrl_c_leaves_the_run_going(begin, people):
    run = sample_run.create_run(people.alice)
    sample_run.play(run, stop_after=12)
    process = begin("follow", str(run.pk))
    assert "softmax" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert f"the run continues. Follow it again: stitchwork follow {run.pk}; end it: stitchwork cancel {run.pk}" in err
    run.refresh_from_db()
    assert run.state != "finished" and not Event.objects.filter(run=run, kind="control.requested").exists()


@pytest.mark.slow
def test_fetch_brings_everything_once_and_goes_on(call, people, files, monkeypatch):
    run = sample_run.create_run(people.alice)
    sample_run.play(run, stop_after=40)
    assert "the run is running" in call("fetch", str(run.pk), "--out", "softmax")[2]
    folder = files / "softmax"
    with (folder / "trace.jsonl").open("ab") as file:
        file.write(b'{"torn')  # the disk was full
    before = {path.name: path.stat().st_mtime_ns for path in (folder / "artefacts").iterdir()}
    sample_run.play(run, stop_after=None)
    code, out, _ = call("fetch", str(run.pk), "--out", "softmax", "--json")
    written = json.loads(out)
    events, stored = read_trace(folder)
    run.refresh_from_db()
    assert code == 0 and len(events) == run.last_seq == written["events"]
    assert dict(stored).keys() == {path.name for path in (folder / "artefacts").iterdir()} and len(before) > 0
    assert all((folder / "artefacts" / name).stat().st_mtime_ns == at for name, at in before.items())
    assert "class ModelNew" in (folder / "best.py").read_text() and (folder / "task.py").read_text() == run.task.source
    assert json.loads((folder / "report.json").read_text())["tier"] == "full"


@pytest.mark.slow
def test_what_was_fetched_is_a_run_elsewhere(call, people, files):
    run = sample_run.create_run(people.alice)
    sample_run.play(run)
    call("fetch", str(run.pk), "--out", "copy")
    told = [(event.seq, event.kind, event.payload) for event in Event.objects.filter(run=run).order_by("seq")]
    Run.objects.filter(pk=run.pk).delete()
    copy = import_trace(files / "copy", people.charlie.personal_team, people.charlie)
    assert [(event.seq, event.kind, event.payload) for event in Event.objects.filter(run=copy).order_by("seq")] == told


@pytest.mark.slow
def test_lists(call, people):
    Device.objects.create(worker="w", kind="cpu", device="cpu", name="Example CPU", model="cpu", queue="verify.cpu")
    run = sample_run.create_run(people.alice)
    sample_run.play(run)
    runs = call("runs", "-n", "5", "-q", "softmax")[1]
    assert str(run.pk) in runs and "improved" in runs and "2.39x [2.35, 2.42]" in runs
    shown = call("show", str(run.pk))[1]
    assert "best: candidate 4, 2.39x [2.35, 2.42] vs eager" in shown and "wrong result" in shown and "AMD EPYC" in shown
    assert "Example CPU  free" in call("devices")[1]
    assert call("leaderboard")[0] == call("leaderboard", "--task", str(run.task_id))[0] == 0
    for command in (("runs",), ("show", str(run.pk)), ("devices",), ("leaderboard",), ("doctor",)):
        assert json.loads(call(*command, "--json")[1]) is not None
    assert call("runs", "--state", "queued")[1] == "no runs; start one: stitchwork submit TASK.py\n"


@pytest.mark.slow
def test_steering(call, people):
    run = sample_run.create_run(people.alice)
    sample_run.play(run, stop_after=10)
    for action in ("pause", "resume", "cancel"):
        assert call(action, str(run.pk))[0] == 0
    asked = Event.objects.filter(run=run, kind="control.requested").order_by("seq")
    assert [event.payload["action"] for event in asked] == ["pause", "resume", "cancel"]


def test_comments_are_read_written_and_resolved(call, people):
    run = sample_run.create_run(people.alice)
    sample_run.play(run)
    services.open_thread(people.alice, run, {"kind": "run"}, "look at \x1b]0;owned\x07 this")
    assert call("comments", str(run.pk), "--add", "-", "--candidate", "4", "--line", "2", stdin="two reads\nof the row")[0] == 0
    code, out, _ = call("comments", str(run.pk))
    assert code == 0 and "on the run" in out and "on line 2 of candidate 4" in out and "two reads" in out and "\x1b" not in out
    thread = json.loads(call("comments", str(run.pk), "--candidate", "4", "--json")[1])[0]
    assert "one is enough" in call("comments", str(run.pk), "--reply", str(thread["id"]), "one is enough")[1]
    assert "resolved by alice" in call("comments", str(run.pk), "--resolve", str(thread["id"]))[1]
    assert "two reads" not in call("comments", str(run.pk))[1] and "two reads" in call("comments", str(run.pk), "--all")[1]
    assert "resolved by" not in call("comments", str(run.pk), "--reopen", str(thread["id"]))[1]
    for wrong, said in (
        (["--add", "x", "--line", "3"], "--line needs --candidate"),
        (["--add", "x", "--event", "3", "--candidate", "4"], "give one place"),
        (["--reply", "x", "y"], "not a thread"),
        (["--resolve", "7777"], "no thread 7777"),
        (["--add", "x", "--candidate", "77"], "no candidate 77"),
    ):
        code, _, error = call("comments", str(run.pk), *wrong)
        assert code == 2 and said in error, (wrong, error)


def test_login_keeps_the_token_for_its_owner_alone(call, server, token, tmp_path):
    empty = {"STITCHWORK_URL": "", "STITCHWORK_TOKEN": ""}
    assert "there is no login" in call("runs", **empty)[2]
    code, out, err = call("login", server, stdin=token + "\n", **empty)
    kept = tmp_path / "config" / "stitchwork" / "login.json"
    assert code == 0 and "alice in team alice (owner), may read, submit, verify" in out and token not in out + err
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600 and stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    assert call("runs", **empty)[0] == 0
    assert call("runs", STITCHWORK_URL="http://127.0.0.1:9", STITCHWORK_TOKEN="")[0] == 2  # its token is not sent to any other server
    assert "there is no token for http://127.0.0.1:9" in call("runs", STITCHWORK_URL="http://127.0.0.1:9", STITCHWORK_TOKEN="")[2]
    wrong = call("login", server, stdin="sw_wrong\n", **empty)
    assert wrong[0] == 2 and "unknown, revoked or expired" in wrong[2] and call("runs", **empty)[0] == 0
    assert call("logout", **empty)[1] == "forgotten\n" and not kept.exists()


@pytest.mark.slow
def test_the_doctor_names_what_is_missing(call, server):
    code, out, _ = call("doctor")
    assert code == 0 and "✓ token: alice in team alice (owner)" in out and "! device cuda: 0 online" in out
    code, out, _ = call("doctor", STITCHWORK_TOKEN="sw_wrong")
    assert code == 2 and "✕ token" in out and "create a token" in out
    code, out, _ = call("doctor", STITCHWORK_URL="http://127.0.0.1:9")
    assert code == 2 and "✕ server" in out


LAPTOP = """
import sys
import stitchwork.cli, stitchwork.lists, stitchwork.fetching
print(sorted({name.partition(".")[0] for name in sys.modules} & {"torch", "django", "numpy", "pydantic", "webapp", "agents", "verifier", "mcp"}))
"""


def test_it_needs_neither_torch_nor_django(environment):
    """The package runs with only httpx installed, as on a laptop."""
    alone = environment | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", LAPTOP], env=alone, cwd="/", capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n", done.stderr
    installed = Path(sys.executable).with_name("stitchwork")
    if installed.exists():
        assert subprocess.run([installed, "--version"], env=os.environ, capture_output=True, text=True, timeout=60).stdout.startswith("stitchwork ")
