"""A trace passes through the database and comes out byte for byte identical."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from agents.events import NewEvent
from agents.journal import FileJournal
from agents.local import LocalVerifier
from tests.unit.webapp.cast import PROGRAM, SOURCE, make_user
from verifier.jobs import JobResult, StageEvent, VerifyJob
from verifier.source import sha256
from webapp.runs.models import Candidate, Run, Verification
from webapp.runs.trace.on_disk import TraceRefused, export_trace, import_trace


class Client:
    """A verifier's client with a single answer."""

    async def run(self, job, on_stage=None) -> JobResult:
        await on_stage(StageEvent(stage="build", status="failed", seconds=1e-7, detail="é\u2028"))
        return JobResult(error="no compiler", timeline=b"\0\1timeline")


async def write(folder: Path) -> None:
    journal = FileJournal(folder)
    source = await journal.put(SOURCE.encode(), "text/x-python", "task.py")
    program = (await journal.put(PROGRAM.encode(), "text/x-python", "program.py")).model_dump()
    started = {
        "task": {"sha": sha256(SOURCE), "name": "softmax"}, "source": source.model_dump(), "workflow": "stitch", "planner": "built-in",
        "coder": "built-in", "device": "cpu", "precision": "fp32-strict", "mode": "train", "target": None, "seed": 0,
        "budget": {"candidates": 8, "seconds": 1e22, "z": -0.0, "a": 1.0},
    }  # fmt: skip
    proposed = {"candidate": 1, "parent": None, "title": "One", "step": "s", "program": program, "sha": program["sha"], "changes": "", "strategy": ""}
    await journal.append([NewEvent(kind="run.started", payload=started)])
    await journal.append([NewEvent(kind="candidate.proposed", span="step-1/attempt-1", payload=proposed)])
    job = VerifyJob(task_source=SOURCE, program_source=PROGRAM)
    await LocalVerifier(journal, Client(), "cpu").run(job, key="step-1#1", span="step-1", candidate="1")
    ended = {"outcome": "failed", "reason": "no compiler", "best": None, "speedup": None}
    await journal.append([NewEvent(kind="run.finished", payload=ended)])


@pytest.fixture
def trace(tmp_path) -> Path:
    asyncio.run(write(tmp_path / "trace"))
    return tmp_path / "trace"


def contents(folder: Path) -> dict[str, bytes]:
    files = [folder / "trace.jsonl", *sorted((folder / "artefacts").iterdir())]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_import_and_export_lose_nothing(trace, tmp_path, user):
    run = import_trace(trace, user.personal_team, user)
    assert (run.state, run.outcome, run.imported, run.title, run.task.source) == ("finished", "failed", True, "softmax", SOURCE)
    assert Candidate.objects.get(run=run).verification == Verification.objects.get(run=run)
    export_trace(run, tmp_path / "again")
    assert contents(tmp_path / "again") == contents(trace)


def test_importing_twice_is_importing_once(trace, user):
    assert import_trace(trace, user.personal_team, user) == import_trace(trace, user.personal_team, user)
    assert Run.objects.count() == 1


def test_an_imported_run_is_never_taken_up(trace, user):
    from webapp.runs.workers.rescue import rescue

    lines = (trace / "trace.jsonl").read_bytes().splitlines(keepends=True)
    (trace / "trace.jsonl").write_bytes(b"".join(lines[:-1]))
    assert import_trace(trace, user.personal_team, user).state == "running"
    assert rescue(5) == 0


def test_another_team_cannot_take_it(trace, user):
    import_trace(trace, user.personal_team, user)
    with pytest.raises(TraceRefused, match="another team"):
        import_trace(trace, make_user("eve").personal_team, None)


def test_what_cannot_be_imported_says_why(trace, tmp_path, user):
    with pytest.raises(TraceRefused, match="no trace.jsonl"):
        import_trace(tmp_path, user.personal_team, user)
    artefact = next((trace / "artefacts").iterdir())
    whole = artefact.read_bytes()
    artefact.write_bytes(b"something else")
    with pytest.raises(TraceRefused, match="does not have the content"):
        import_trace(trace, user.personal_team, user)
    artefact.write_bytes(whole)
    lines = (trace / "trace.jsonl").read_bytes().splitlines(keepends=True)
    (trace / "trace.jsonl").write_bytes(lines[0] + lines[2])
    with pytest.raises(TraceRefused, match="gap"):
        import_trace(trace, user.personal_team, user)
    (trace / "trace.jsonl").write_bytes(b"".join(lines))
    artefact.unlink()
    with pytest.raises(TraceRefused, match="missing"):
        import_trace(trace, user.personal_team, user)
    assert Run.objects.count() == 0


def test_the_commands(trace, tmp_path, user, capsys):
    call_command("import_trace", str(trace))
    run = Run.objects.get()
    call_command("export_trace", str(run.pk), str(tmp_path / "out"))
    call_command("rebuild", str(run.pk))
    assert contents(tmp_path / "out") == contents(trace)
    with pytest.raises(CommandError, match="already holds a trace"):
        call_command("export_trace", str(run.pk), str(tmp_path / "out"))
    with pytest.raises(CommandError, match="no run"):
        call_command("export_trace", "nonsense", str(tmp_path / "out2"))
