"""Finds current verdicts, and maintains the column by which rankings filter them."""

from __future__ import annotations

import uuid

from webapp.review.models import Verdict
from webapp.runs.models import Candidate, Run
from webapp.runs.trace.parts import Part

# A result with one of these verdicts is excluded from every ranking, and its pages explain why.
UNRANKED = (Verdict.QUESTIONED, Verdict.HACK, Verdict.RETRACTED)


def standing(candidate: Candidate) -> Verdict | None:
    """Returns the current verdict on a candidate."""
    return latest(candidate.run_id, candidate.number)


def latest(run_id: uuid.UUID, number: int) -> Verdict | None:
    found = Verdict.objects.filter(run_id=run_id, candidate=number).select_related("by").order_by("-id").first()
    return None if found is None or found.value == Verdict.WITHDRAWN else found


def standing_of(run: Run) -> dict[int, Verdict]:
    """Returns the current verdicts for a run's page, keyed by candidate."""
    rows = Verdict.objects.filter(run=run).select_related("by").order_by("candidate", "-id").distinct("candidate")
    return {row.candidate: row for row in rows if row.value != Verdict.WITHDRAWN}


def history(run: Run, number: int) -> list[Verdict]:
    """Returns all verdicts on a candidate, newest first."""
    return list(Verdict.objects.filter(run=run, candidate=number).select_related("by").order_by("-id"))


def restore(run: Run) -> None:
    """Rebuilds the column from the verdicts. Candidate rows are projections of the trace, which does not contain the verdicts."""
    for number, verdict in standing_of(run).items():
        Candidate.objects.filter(run=run, number=number).update(verdict=verdict.value)


PART = Part(restore=restore)
