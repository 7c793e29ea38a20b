"""Explains the purpose of a candidate: the diagnosis that led to it, the chosen method, and the expected and realised gains."""

from __future__ import annotations

import math
from dataclasses import dataclass

from agents.payloads import CandidateProposed, DecisionMade, DiagnosisMade, Figure
from verifier.report import Interval
from webapp.runs.models import Candidate, Run, Verification


@dataclass(frozen=True)
class Expectation:
    """The expected and the realised gain. `expected` and `realised` are speedups over the parent."""

    method: str
    reason: str
    bottleneck: str
    found: str  # the diagnosis
    headroom: float | None
    evidence: tuple[Figure, ...]
    expected: float | None
    realised: float | None
    interval: Interval | None  # interval of the realised speedup, from the intervals of both candidates over eager
    decided_at: int  # seq of the decision

    @property
    def kept(self) -> str:
        """Return whether the expectation was "met" or "missed" or the result is "worse"; "" if that is unknown."""
        if self.expected is None or self.realised is None:
            return ""
        high = self.interval.high if self.interval else self.realised
        if high < 1:
            return "worse"
        return "met" if high >= self.expected else "missed"


def expectation_of(run: Run, candidate: Candidate) -> Expectation | None:
    """Return the expectation from the trace; None for a first program or if no decision was recorded."""
    if candidate.parent_number is None:
        return None
    rows = list(run.events.filter(kind__in=[CandidateProposed.kind, DecisionMade.kind]).order_by("seq"))
    told = [(row.seq, row.body) for row in rows]
    row = next((row for row in rows if isinstance(row.body, CandidateProposed) and row.body.candidate == candidate.number), None)
    proposed = row.seq if row is not None else 0
    decisions = [(seq, said) for seq, said in told if isinstance(said, DecisionMade)]
    answers = next(
        (said.of for other in rows if row is not None and other.span == row.span and isinstance(said := other.body, DecisionMade) and said.of), None
    )
    before = [(seq, said) for seq, said in decisions if seq < proposed and said.of is None]
    if row is not None and isinstance(row.body, CandidateProposed) and row.body.way is not None:  # otherwise it may belong to another branch
        before = [(seq, said) for seq, said in before if seq == answers]
    decision = before[-1] if before else None
    if decision is None:
        return None
    seq, made = decision
    row = run.events.filter(kind=DiagnosisMade.kind, seq__lt=seq).order_by("-seq").first()
    diagnosis = row.said(DiagnosisMade) if row else DiagnosisMade()
    return Expectation(
        method=made.method or candidate.strategy or diagnosis.method or "",
        reason=made.reason,
        bottleneck=diagnosis.bottleneck,
        found=diagnosis.text,
        headroom=diagnosis.headroom,
        evidence=tuple(diagnosis.evidence)[:6],
        expected=made.expected,
        realised=next((said.realised for _, said in decisions if said.of == seq), None),
        interval=_over_parent(run, candidate),
        decided_at=seq,
    )


def _against_eager(row: Verification | None) -> Interval | None:
    if row is None or not row.speedup or not row.speedup_low or not row.speedup_high:
        return None
    return Interval(ratio=row.speedup, low=row.speedup_low, high=row.speedup_high)


def _over_parent(run: Run, candidate: Candidate) -> Interval | None:
    """Return the interval of the speedup over the parent.

    Both programs were timed against eager in separate runs, so the errors of the two logarithms add in quadrature.
    """
    if candidate.parent_number is None:
        return None
    parent = Candidate.objects.select_related("verification").filter(run=run, number=candidate.parent_number).first()
    mine, theirs = _against_eager(candidate.verification), _against_eager(parent.verification if parent else None)
    if mine is None or theirs is None:
        return None
    middle = math.log(mine.ratio / theirs.ratio)
    half = math.hypot(*(math.log(one.high / one.low) / 2 for one in (mine, theirs)))
    return Interval(ratio=math.exp(middle), low=math.exp(middle - half), high=math.exp(middle + half))
