"""What a candidate was made for: the diagnosis before it, the method that was chosen, the gain that was expected, and the one that came."""

from __future__ import annotations

import math
from dataclasses import dataclass

from agents.payloads import CandidateProposed, DecisionMade, DiagnosisMade, Figure
from verifier.report import Interval
from webapp.runs.models import Candidate, Run


@dataclass(frozen=True)
class Expectation:
    """`expected` and `realised` are speedups over the parent."""

    method: str
    reason: str
    bottleneck: str
    found: str  # what the diagnosis said
    headroom: float | None
    evidence: tuple[Figure, ...]
    expected: float | None
    realised: float | None
    interval: Interval | None  # of the realised one, from both candidates' intervals against eager
    decided_at: int  # seq of the decision

    @property
    def kept(self) -> str:
        """How the promise was kept: "met", "missed", "worse" or nothing."""
        if self.expected is None or self.realised is None:
            return ""
        high = self.interval.high if self.interval else self.realised
        if high < 1:
            return "worse"
        return "met" if high >= self.expected else "missed"


def expectation_of(run: Run, candidate: Candidate) -> Expectation | None:
    """Out of the trace; None for a first program, and where nobody decided."""
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
    if row is not None and isinstance(row.body, CandidateProposed) and row.body.way is not None:  # the last decision may be another way's
        before = [(seq, said) for seq, said in before if seq == answers]
    decision = before[-1] if before else None
    if decision is None:
        return None
    seq, made = decision
    row = run.events.filter(kind=DiagnosisMade.kind, seq__lt=seq).order_by("-seq").first()
    diagnosis = row.body if row else DiagnosisMade()
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


def _over_parent(run: Run, candidate: Candidate) -> Interval | None:
    """Both were timed against eager, in runs of their own: the errors of the two logarithms add as squares."""
    parent = Candidate.objects.select_related("verification").filter(run=run, number=candidate.parent_number).first()
    rows = [candidate.verification, parent.verification if parent else None]
    if any(row is None or not row.speedup or not row.speedup_low or not row.speedup_high for row in rows):
        return None
    mine, theirs = rows
    middle = math.log(mine.speedup / theirs.speedup)
    half = math.hypot(*(math.log(row.speedup_high / row.speedup_low) / 2 for row in rows))
    return Interval(ratio=math.exp(middle), low=math.exp(middle - half), high=math.exp(middle + half))
