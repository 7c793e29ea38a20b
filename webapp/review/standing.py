"""Which verdicts stand, and the column of them that rankings filter by."""

from __future__ import annotations

import uuid

from webapp.review.models import Verdict
from webapp.runs.models import Candidate, Run
from webapp.runs.trace.parts import Part

# A result with one of these is in no ranking; its pages say why.
UNRANKED = (Verdict.QUESTIONED, Verdict.HACK, Verdict.RETRACTED)


def standing(candidate: Candidate) -> Verdict | None:
    """The verdict that stands on a candidate now."""
    return latest(candidate.run_id, candidate.number)


def latest(run_id: uuid.UUID, number: int) -> Verdict | None:
    found = Verdict.objects.filter(run_id=run_id, candidate=number).select_related("by").order_by("-id").first()
    return None if found is None or found.value == Verdict.WITHDRAWN else found


def standing_of(run: Run) -> dict[int, Verdict]:
    """By candidate, for a run's page."""
    rows = Verdict.objects.filter(run=run).select_related("by").order_by("candidate", "-id").distinct("candidate")
    return {row.candidate: row for row in rows if row.value != Verdict.WITHDRAWN}


def history(run: Run, number: int) -> list[Verdict]:
    """Newest first."""
    return list(Verdict.objects.filter(run=run, candidate=number).select_related("by").order_by("-id"))


def restore(run: Run) -> None:
    """Write the column again from the verdicts: rows of candidates are projections of the trace, verdicts are not."""
    for number, verdict in standing_of(run).items():
        Candidate.objects.filter(run=run, number=number).update(verdict=verdict.value)


PART = Part(restore=restore)
