"""Verdicts on candidates: who may give them, which one is current, and what their effects are."""

from __future__ import annotations

from django.core.exceptions import PermissionDenied
from django.db import transaction

from webapp.accounts import audit
from webapp.accounts.access import Asker, has_right, require, user_of
from webapp.review import notices
from webapp.review.desk import next_seq
from webapp.review.models import Verdict
from webapp.review.standing import UNRANKED, latest
from webapp.runs.models import Candidate, Run

NEED_REASON = UNRANKED
LONGEST_REASON = 2000


class VerdictRefused(ValueError):
    """Raised if a verdict cannot be given. The message says why."""


def may_retract(asker: Asker, run: Run) -> bool:
    """Returns whether the requester may give or withdraw "retracted". The team's owners may, and so may the person who started the run while still a
    member."""
    return has_right(asker, run.team_id, "own") or (run.created_by_id == user_of(asker).pk and has_right(asker, run.team_id, "act"))


def give(asker: Asker, run: Run, number: int, value: str, reason: str = "") -> Verdict:
    """Records a verdict on a candidate, or withdraws the current one (`withdrawn`). Raises `VerdictRefused`, `PermissionDenied`."""
    require(asker, run.team_id, "act")
    reason = reason.replace("\0", "").strip()
    if value not in Verdict.VALUES:
        raise VerdictRefused(f"A verdict is one of {', '.join(Verdict.VALUES)}.")
    if value in NEED_REASON and not reason:
        raise VerdictRefused(f"Say why it is {value}: everyone looking for the result in the ranking will read it.")
    if len(reason) > LONGEST_REASON:
        raise VerdictRefused(f"The reason has {len(reason):,} characters; at most {LONGEST_REASON:,} are allowed. Put the rest in a comment.")
    user = user_of(asker)
    with transaction.atomic():
        # Sequence numbers serialise the verdicts on a run, so the column always matches the current verdict.
        seq = next_seq(run)
        candidate = Candidate.objects.filter(run=run, number=number).first()
        if candidate is None:
            raise VerdictRefused(f"This run has no candidate {number}.")
        before = latest(run.pk, number)
        if value == Verdict.WITHDRAWN and before is None:
            raise VerdictRefused("This candidate has no verdict.")
        if Verdict.RETRACTED in (value, before.value if before else "") and not may_retract(asker, run):
            raise PermissionDenied("Only an owner of the team, or the person who started the run, can retract a result or lift a retraction.")
        verdict = Verdict.objects.create(run=run, candidate=number, value=value, reason=reason, by=user, seq=seq)
        Candidate.objects.filter(pk=candidate.pk).update(verdict="" if value == Verdict.WITHDRAWN else value)
        detail = {"run": str(run.pk), "candidate": number, "value": value, "before": before.value if before else "", "reason": reason[:200]}
        audit.record(asker, run.team, "verdict.given", f"candidate {number} of {run.title}", detail)
        notices.of_verdict(verdict, user)
    return verdict
