"""Extracts lessons about strategies from a finished run's events. The lessons are part of the run's projection and are rebuilt with it."""

from __future__ import annotations

from agents.events import Event
from agents.payloads import CandidateProposed, DecisionMade, PlanEdited, PlanProposed, RunFinished, RunStarted, VerificationFinished
from agents.strategies.combined import LONGEST
from agents.strategies.ledger import entries
from webapp.knowledge.models import Learned
from webapp.runs.models import Event as EventRow
from webapp.runs.models import Run, Verification
from webapp.runs.trace.parts import Part
from webapp.runs.trace.projection import event_of

NEEDED = [said.kind for said in (RunStarted, PlanProposed, PlanEdited, CandidateProposed, VerificationFinished, DecisionMade, RunFinished)]


def forget(run: Run) -> None:
    Learned.objects.filter(run=run).delete()


PART = Part(forget=forget)


@PART.rows.on(RunFinished)
def learn(run: Run, finished: Event, p: RunFinished) -> None:
    """Writes the run's lessons. A program that a person submitted ("verify") yields no lessons about strategies."""
    rows = EventRow.objects.filter(run=run, kind__in=NEEDED, seq__lt=finished.seq).order_by("seq")
    events = [event_of(row) for row in rows]
    models = dict(Verification.objects.filter(run=run, kind="verify").exclude(device_model="").values_list("candidate_number", "device_model"))
    forget(run)
    Learned.objects.bulk_create(
        Learned(
            team_id=run.team_id, run=run, candidate=e.candidate, strategy=e.strategy[:LONGEST], step=e.step[:60], operators=e.operators,
            device=e.device[:8], device_model=models.get(e.candidate, ""), precision=e.precision[:12], task_sha=run.task.sha,
            task_name=run.task.name[:140], title=e.title[:200], changes=e.changes, program=e.program, status=e.status[:24], expected=e.expected,
            realised=e.realised, speedup=e.speedup, outcome=e.outcome, confirmed=e.confirmed, at=finished.at,
        )
        for e in entries([*events, finished])
    )  # fmt: skip
