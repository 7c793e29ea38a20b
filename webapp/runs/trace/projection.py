"""Projects events to rows.

Writes the rows that lists and pages query in the same transaction as the events, and can rebuild them from the events. A rebuild keeps values that
belong to the queue (`lease_epoch`, `Verification.device`) and values set by people (`archived_at`, `published`).
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from datetime import datetime
from typing import Any, cast

from django.db import connection, transaction

from agents.events import Agent, ArtefactRef, Event, Projection
from agents.payloads import (
    BudgetUpdated,
    CandidateProposed,
    ProfileAttached,
    RunFinished,
    RunForked,
    RunPaused,
    RunResumed,
    RunStarted,
    VerificationFinished,
    VerificationQueued,
    VerificationStage,
)
from agents.payloads import Verification as JobPayload
from agents.strategies.combined import LONGEST
from verifier.report import CLOCK
from webapp.runs import artefacts, headline
from webapp.runs.models import Artefact, Candidate, Run, Verification
from webapp.runs.models import Event as EventRow
from webapp.runs.trace.kernels import names_in
from webapp.runs.trace.parts import PARTS
from webapp.runs.trace.reading import stamp

EARLIER_CLOCK = "earlier clock"  # a flag for times that cannot be compared with those of the current clock

ROWS: Projection[Run, Event] = Projection()

PROJECTED: dict[str, Any] = {  # values of a run before its first event
    "state": "queued", "outcome": "", "reason": "", "best_candidate": None, "speedup": None, "headline": "", "gain": None, "spent": {},
    "started_at": None, "finished_at": None,
}  # fmt: skip


def project(run_id: uuid.UUID | str, events: Sequence[Event]) -> None:
    """Apply newly written `events` to the rows. Call this in the same transaction as the events, with the run's row locked."""
    rows = [ROWS, *(part.rows for part in PARTS)]
    mine = [event for event in events if any(event.kind in one for one in rows)]
    if mine:
        run = Run.objects.get(pk=run_id)
        names = [*PROJECTED, "workflow", "device_kind", "precision"]
        before = {name: getattr(run, name) for name in names}
        for event in mine:
            for one in rows:
                one.take(run, event)
        # A verdict changes none of these fields, and a verifier has no permission to write them (webapp/roles.py).
        if changed := [name for name in names if getattr(run, name) != before[name]]:
            run.save(update_fields=changed)


def rebuild(run_id: uuid.UUID | str) -> None:
    """Discard the content of the rows and rebuild it from the trace."""
    with transaction.atomic():
        run = Run.objects.select_for_update(no_key=True).get(pk=run_id)
        Candidate.objects.filter(run=run).delete()
        for part in PARTS:
            part.forget(run)
        # Rows that the queue refers to keep their ids. Everything derived from events is rewritten.
        Verification.objects.filter(run=run).update(
            state="queued", started_at=None, finished_at=None, result=None, timeline=None, status="", tier="", device_model="", device_name="",
            clock=None, program_class="", own_share=None, program_ms=None, speedup=None, speedup_low=None, speedup_high=None, best_baseline="",
            best_baseline_speedup=None, best_baseline_low=None, best_baseline_high=None, baselines=None, flags=[],
        )  # fmt: skip
        for name, value in PROJECTED.items():
            setattr(run, name, value)
        run.save(update_fields=list(PROJECTED))
        rows = EventRow.objects.filter(run=run).order_by("seq")
        project(run_id, [event_of(row) for row in rows.iterator(chunk_size=1000)])
        for part in PARTS:
            part.restore(run)


def event_of(row: EventRow) -> Event:
    return Event(
        # The model validates the agent's name.
        v=row.v, run=str(row.run_id), seq=row.seq, at=stamp(row.at), span=row.span, parent=row.parent, agent=cast(Agent, row.agent), kind=row.kind,
        payload=row.payload,
    )  # fmt: skip


def _at(event: Event) -> datetime:
    return datetime.fromisoformat(event.at)


def _artefact(run: Run, ref: ArtefactRef | None) -> Artefact | None:
    return artefacts.find(run.team_id, ref.sha) if ref else None


# --- the run


@ROWS.on(RunStarted)
def _started(run: Run, event: Event, p: RunStarted) -> None:
    run.state, run.started_at = "running", _at(event)
    run.workflow = p.workflow or run.workflow
    run.device_kind = (p.device or run.device_kind).partition(":")[0]
    run.precision = p.precision or run.precision


@ROWS.on(RunPaused)
def _paused(run: Run, event: Event, p: RunPaused) -> None:
    run.state = "paused"


@ROWS.on(RunResumed)
def _resumed(run: Run, event: Event, p: RunResumed) -> None:
    run.state = "running"


@ROWS.on(RunForked)
def _forked(run: Run, event: Event, p: RunForked) -> None:
    """Discard verifications that were in progress in the parent run, because the fork has not requested them."""
    run.state = "running"
    run.workflow = p.settings.get("workflow", run.workflow)
    Verification.objects.filter(run=run).exclude(state="finished").delete()


@ROWS.on(RunFinished)
def _finished(run: Run, event: Event, p: RunFinished) -> None:
    run.state, run.finished_at = "finished", _at(event)
    run.outcome, run.reason = p.outcome, p.reason
    run.best_candidate, run.speedup = p.best, p.speedup.model_dump() if p.speedup else None
    left = Verification.objects.filter(run=run).exclude(state="finished")
    stop_jobs([str(key) for key in left.values_list("pk", flat=True)])
    left.update(state="finished", finished_at=_at(event))  # finished without a verdict, because no process is waiting for it any longer
    headline.keep(run)


@ROWS.on(BudgetUpdated)
def _spent(run: Run, event: Event, p: BudgetUpdated) -> None:
    run.spent = p.spent if "spent" in p.model_fields_set else run.spent


def stop_jobs(verifications: list[str]) -> None:
    """Remove waiting jobs from the queue, and ask the verifier to abort running ones."""
    if verifications:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT procrastinate_cancel_job_v1(id, true, false) FROM procrastinate_jobs"
                " WHERE task_name = 'verify' AND status IN ('todo', 'doing') AND args ->> 'verification_id' = ANY(%s)",
                [verifications],
            )


# --- candidates


@ROWS.on(CandidateProposed)
def _candidate(run: Run, event: Event, p: CandidateProposed) -> None:
    program = _artefact(run, p.program)
    assert program is not None, "a candidate has a program"
    Candidate.objects.update_or_create(
        run=run,
        number=p.candidate,
        defaults={
            "parent_number": p.parent,
            "title": p.title[:200],
            "changes": p.changes,
            "step": p.step[:60],
            "strategy": p.strategy[:LONGEST],
            "sha": p.sha,
            "program": program,
            "kernels": names_in(program),
            "created_at": _at(event),
        },
    )


@ROWS.on(ProfileAttached)
def _profile(run: Run, event: Event, p: ProfileAttached) -> None:
    if p.candidate is not None:
        attached = {"timeline": _artefact(run, p.timeline), "profile": _artefact(run, p.profile)}
        Candidate.objects.filter(run=run, number=p.candidate).update(**attached)


# --- verifications


@ROWS.on(VerificationQueued)
def _queued(run: Run, event: Event, p: VerificationQueued) -> None:
    """Also handles verifications that are queued again because their verifier died or was stopped."""
    _waits(run, event, p, queue=p.queue, **({"request": _artefact(run, p.request)} if p.request else {}))


def _waits(run: Run, event: Event, p: JobPayload, **more: Any) -> None:
    known = {
        "span": event.span,
        "kind": p.job,
        "candidate_number": p.candidate,
        "attempt": p.attempt,
        "state": "queued",
        "queued_at": _at(event),
        "started_at": None,
        "team_id": run.team_id,
        **({"tier": p.tier} if p.tier else {}),
        **more,
    }
    identity = {"id": p.verification} if p.verification else {}
    Verification.objects.update_or_create(run=run, key=p.key, defaults=known, create_defaults=known | identity)


@ROWS.on(VerificationStage)
def _stage(run: Run, event: Event, p: VerificationStage) -> None:
    waiting = Verification.objects.filter(run=run, key=p.key, state="queued")
    waiting.update(state="running", started_at=_at(event))


@ROWS.on(VerificationFinished)
def _verified(run: Run, event: Event, p: VerificationFinished) -> None:
    found = Verification.objects.filter(run=run, key=p.key).first()
    if found is None:  # an imported trace may not record that the verification was queued
        _waits(run, event, p, queue="")
        found = Verification.objects.get(run=run, key=p.key)
    found.state, found.finished_at = "finished", _at(event)
    found.result, found.timeline = _artefact(run, p.result), _artefact(run, p.timeline)
    found.status, found.tier, found.flags = p.status, p.tier or "", p.flags
    result = json.loads(artefacts.read(found.result)) if found.result else {}
    if report := result.get("report"):
        _take_report(found, report)
    found.save()
    if found.kind == "verify" and found.candidate_number is not None:
        candidate = Candidate.objects.select_related("verification").filter(run=run, number=found.candidate_number).first()
        earlier = candidate.verification if candidate else None
        if candidate and not (earlier and earlier.tier == "full" and found.tier == "quick"):
            Candidate.objects.filter(pk=candidate.pk).update(verification=found)


def _take_report(row: Verification, report: dict[str, Any]) -> None:
    environment = report.get("environment") or {}
    row.device_model, row.device_name = environment.get("device_model", "")[:60], environment.get("device_name", "")[:120]
    row.status, row.tier, row.flags = report["status"], report["tier"], [*(report.get("flags") or []), *_caveats(report)]
    row.clock = clock_of(report)
    row.program_class, row.own_share = report.get("program_class") or "", report.get("own_share")
    timing = report.get("timing") or {}
    row.program_ms = timing.get("program_ms")
    comparisons = timing.get("comparisons") or []
    row.baselines = len(comparisons) if timing else None
    for comparison in comparisons:
        if comparison["baseline"] == "eager":
            speedup = comparison["speedup"]
            row.speedup, row.speedup_low, row.speedup_high = speedup["ratio"], speedup["low"], speedup["high"]
    if comparisons:
        best = min(comparisons, key=lambda comparison: comparison["speedup"]["ratio"])  # the speedup is smallest over the fastest baseline
        row.best_baseline, row.best_baseline_speedup = best["baseline"], best["speedup"]["ratio"]
        row.best_baseline_low, row.best_baseline_high = best["speedup"]["low"], best["speedup"]["high"]


def _caveats(report: dict[str, Any]) -> list[str]:
    """Return caveats that the reader of a figure should know, in addition to the task's own flags. webapp/ui/tags.py explains them."""
    held = {
        EARLIER_CLOCK: bool(report.get("timing")) and clock_of(report) < CLOCK,
        "bounded": (report.get("timing") or {}).get("bounded"),
        "seeded": report.get("weights") == "seeded",
        "findings": any(finding.get("severity") == "downgrade" for finding in report.get("findings") or []),
        "no sandbox": (report.get("protection") or {}).get("sandbox") == "process",
    }
    return [name for name, holds in held.items() if holds]


def clock_of(report: dict[str, Any]) -> int:
    """Return the version of the clock that was used or, if nothing was timed, would have been used.

    In a report without times, the `untried` field identifies the version, because it was introduced with the second clock.
    """
    timing = report.get("timing")
    if timing:
        return timing.get("clock") or 1
    return CLOCK if "untried" in report else 1
