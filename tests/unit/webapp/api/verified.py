"""Ends a verification that was started through the API, as the orchestrator and a verifier would, but without either of them."""

from __future__ import annotations

import json
import uuid

from agents.events import NewEvent
from agents.local import with_findings
from agents.payloads import VerificationFinished
from tests.browser.sample_run import report
from verifier.jobs import AdmitJob, JobResult, VerifyJob
from verifier.report import Report
from verifier.task import Admission
from webapp.runs import artefacts
from webapp.runs.models import Run
from webapp.runs.services import submitted_program
from webapp.runs.trace.append import append


def finish(run: Run, status: str = "passed", *, ratio: float = 2.4, **changes) -> Report:
    """Ends the verification with a report; `changes` are fields of the report."""
    program = submitted_program(run)
    tier = run.settings["tier"]
    body = report(run.task.sha, artefacts.put(run.team_id, program.encode(), "text/x-python").sha, status, ratio, tier, seed=1) | changes
    result = JobResult(report=Report.model_validate(body))
    source = _stored(run, run.task.source.encode(), "text/x-python", "task.py")
    ref = _stored(run, program.encode(), "text/x-python", "candidate-1.py")
    _begin(run, source)
    verify = VerifyJob(task_source=run.task.source, program_source=program, tier=tier)
    append(
        run.pk,
        [
            *_admitted(run, Admission(task=run.task.sha, ok=True)),
            NewEvent(kind="span.opened", span="verify", agent="verifier", payload={"title": "Verify the program"}),
            NewEvent(
                kind="candidate.proposed", span="verify", agent="verifier",
                payload={"key": "verify#1", "candidate": 1, "parent": None, "title": "The submitted program", "step": "verify", "program": ref,
                         "sha": ref["sha"], "changes": "Written by a person.", "strategy": ""},
            ),
            *_job(run, verify, result, span="verify", key="verify#2", candidate=1),
        ],
    )  # fmt: skip
    speedup = result.report.speedup.model_dump() if result.report.speedup else None
    outcome = "improved" if status == "passed" and ratio > 1 else "failed"
    best = 1 if status == "passed" else None
    append(
        run.pk, [NewEvent(kind="run.finished", payload={"outcome": outcome, "reason": f"the program: {status}", "best": best, "speedup": speedup})]
    )
    run.refresh_from_db()
    return result.report


def refuse(run: Run, problem: dict) -> None:
    """Ends the verification because the task is not admitted."""
    _begin(run, _stored(run, run.task.source.encode(), "text/x-python", "task.py"))
    append(run.pk, _admitted(run, Admission(task=run.task.sha, ok=False, problems=[problem])))
    append(
        run.pk, [NewEvent(kind="run.finished", payload={"outcome": "failed", "reason": "the task was not admitted", "best": None, "speedup": None})]
    )
    run.refresh_from_db()


def _begin(run: Run, source: dict) -> None:
    settings = {
        name: run.settings[name] for name in ("workflow", "device", "precision", "mode", "tier", "budget", "seed", "planner", "coder", "judge")
    }
    append(run.pk, [NewEvent(kind="run.started", payload=settings | {"task": {"sha": run.task.sha, "name": run.task.name}, "source": source})])


def _admitted(run: Run, admission: Admission) -> list[NewEvent]:
    return _job(run, AdmitJob(task_source=run.task.source), JobResult(admission=admission), span="admit", key="admit#1", candidate=None)


def _job(run: Run, job, result: JobResult, *, span: str, key: str, candidate: int | None) -> list[NewEvent]:
    found = artefacts.put(run.team_id, result.model_dump_json().encode(), "application/json", "result.json")
    request = _stored(run, json.dumps({"kind": job.kind}).encode(), "application/json", "job.json")
    verification = str(uuid.uuid4())
    queued = {"key": key, "job": job.kind, "candidate": candidate, "verification": verification, "queue": "verify.cpu", "request": request}
    stages = result.report.stages if result.report else []
    told = [
        NewEvent(
            kind="verification.stage", span=span, agent="verifier", payload={"key": key, "stage": s.name, "status": s.status, "seconds": s.seconds}
        )
        for s in stages
    ]
    done = VerificationFinished(key=key, job=job.kind, candidate=candidate, verification=verification, result=found, seconds=2.0)
    return [
        NewEvent(kind="verification.queued", span=span, agent="verifier", payload=queued),
        *told,
        NewEvent.of(with_findings(done, result, None), span, "verifier"),
    ]


def _stored(run: Run, data: bytes, media_type: str, name: str) -> dict:
    return artefacts.put(run.team_id, data, media_type, name).model_dump()
