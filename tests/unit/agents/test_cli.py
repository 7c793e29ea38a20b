"""The command line with a fake verifier: what it writes, prints and returns."""

from __future__ import annotations

import asyncio
import json

import pytest
from agent_fakes import TASK, FakeClient, FakeRoles

from agents import cli
from agents.events import NewEvent
from agents.journal import FileJournal, read_trace

PROGRAMS = ["# status wrong_result", "# speed 1.2", "# speed 1.6"]


class Client(FakeClient):
    async def close(self):
        self.calls.append("close")


@pytest.fixture
def client(monkeypatch):
    fake = Client()
    monkeypatch.setattr(cli, "open_verifier", lambda device, data_dir: fake)
    monkeypatch.setattr("agents.cli.roles_for", lambda *_: FakeRoles(PROGRAMS).roles())
    return fake


@pytest.fixture
def task(tmp_path):
    path = tmp_path / "softmax.py"
    path.write_text(TASK)
    return path


def test_solve_writes_trace_reports_best_and_summary(client, task, tmp_path, capsys):
    out = tmp_path / "out"
    assert cli.main(["solve", str(task), "--out", str(out)]) == 0
    printed = capsys.readouterr()
    assert "softmax" in printed.out and "improved" in printed.out and "1.60x [1.57, 1.63]" in printed.out
    assert "candidate 3" in printed.err and "finished: improved" in printed.err
    assert (out / "best.py").read_text() == "# speed 1.6"
    assert len(list((out / "reports").glob("*.json"))) == 4
    summary = json.loads((out / "summary.json").read_text())
    assert summary["outcome"] == "improved" and summary["best"] == 3
    events, artefacts = read_trace(out)
    assert events[-1].kind == "run.finished" and dict(artefacts)
    assert client.calls[-1] == "close"
    assert cli.main(["show", str(out), "--events"]) == 0
    shown = capsys.readouterr().out
    assert "outcome improved" in shown and "wrong_result" in shown and "expected 1.30x, realised 1.33x" in shown


def test_a_second_run_into_the_same_place_needs_resume(client, task, tmp_path, capsys):
    out = tmp_path / "out"
    cli.main(["solve", str(task), "--out", str(out), "--quiet"])
    calls = len(client.calls)
    assert cli.main(["solve", str(task), "--out", str(out)]) == cli.USAGE
    assert "--resume" in capsys.readouterr().err
    assert cli.main(["solve", str(task), "--out", str(out), "--resume"]) == 0
    assert len(client.calls) == calls + 1, "only closed again"


def test_an_interrupted_run_can_be_resumed(client, task, tmp_path, capsys):
    out = tmp_path / "out"

    async def interrupt(job):
        if len(client.calls) == 6:
            raise KeyboardInterrupt

    client.before = interrupt
    assert cli.main(["solve", str(task), "--out", str(out), "--target", "3", "--quiet"]) == cli.INTERRUPTED
    assert "--resume" in capsys.readouterr().err
    client.before = None
    assert cli.main(["solve", str(task), "--out", str(out), "--resume", "--quiet"]) == 0
    events, _ = read_trace(out)
    assert events[0].payload["target"] == 3 and sum(e.kind == "run.finished" for e in events) == 1


def test_several_tasks_and_their_exit_codes(client, task, tmp_path, capsys):
    other = tmp_path / "more"
    other.mkdir()
    (other / "softmax.py").write_text(TASK + "# other")
    (other / "_private.py").write_text("")
    assert cli.main(["solve", str(task), str(other), "--out", str(tmp_path / "out"), "--quiet", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == {"softmax", "softmax-2"}
    assert (tmp_path / "out/softmax-2/best.py").exists()
    client.admission_ok = False
    assert cli.main(["solve", str(task), "--out", str(tmp_path / "refused"), "--quiet"]) == 1
    assert cli.main(["solve", str(tmp_path / "absent.py"), "--out", str(tmp_path / "x")]) == cli.USAGE
    assert cli.main(["solve", str(task), "--out", str(tmp_path / "y"), "--workflow", "verify"]) == cli.USAGE
    assert cli.main(["solve", str(task), "--out", str(tmp_path / "z"), "--budget-candidates", "0"]) == cli.USAGE


def test_control_reaches_a_run_of_another_process(client, task, tmp_path):
    out = tmp_path / "out"

    async def cancel(job):
        if len(client.calls) == 5:
            folder = FileJournal(out, owner=False)
            await folder.append([NewEvent(kind="control.requested", agent="person", payload={"action": "cancel", "by": "test"})])
            await asyncio.sleep(5)

    client.before = cancel
    assert cli.main(["solve", str(task), "--out", str(out), "--quiet"]) == 4
    assert cli.main(["control", str(out), "cancel"]) == cli.USAGE, "it has finished"


def test_a_run_goes_on_on_the_device_that_it_was_begun_on(client, task, tmp_path, capsys, monkeypatch):
    """A GPU run that is continued without --device must never be measured on the CPU."""
    opened = []
    monkeypatch.setattr(cli, "open_verifier", lambda device, data_dir: opened.append(device) or client)
    out = tmp_path / "out"
    assert cli.main(["solve", str(task), "--out", str(out), "--device", "cuda:1", "--quiet"]) == 0
    assert cli.main(["solve", str(task), "--out", str(out), "--resume", "--quiet"]) == 0
    assert opened == ["cuda:1", "cuda:1"]
    assert cli.main(["solve", str(task), "--out", str(out), "--resume", "--device", "cpu"]) == cli.USAGE
    assert "holds a run on cuda:1" in capsys.readouterr().err and opened == ["cuda:1", "cuda:1"]
    assert cli.main(["solve", str(task), "--out", str(out), "--resume", "--device", "cuda:0", "--quiet"]) == 0 and opened[-1] == "cuda:0"
