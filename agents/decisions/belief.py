"""Estimates the expected gain of a node. The belief is a normal posterior over the share of a promise that is kept. The accuracy of such beliefs is
tracked too.

Shares are defined as in the ledger (`agents.strategies.ledger`): for one try, `kept` is the logarithm of the actual gain divided by the logarithm of
the promised gain, or 0 if the program was incorrect. Estimates are shrunk hierarchically: a strategy's tries are shrunk towards all known tries, and
these towards the ledger's prior (two tries that kept their promise exactly). The promise is therefore the only number that a node's author supplies.
It is discounted by the results of earlier promises and never exceeds the gain that the floor allows.

The model: kept share of a node ~ N(m, SPREAD^2), with m ~ N(mean, SPREAD^2 / weight); the gain is exp(kept share x log promise).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, hypot, log
from random import Random

from agents.strategies.combined import parts
from agents.strategies.ledger import PRIOR, Record

SPREAD = 0.6  # standard deviation of the kept share between tries
WEIGHT = 2.0  # weight, in tries, of the mean over all strategies relative to a strategy's own tries
NOISE = 0.02  # standard deviation of the noise in the logarithm of a measured gain
NO_PROMISE = 1.15  # promise assumed for a node without one
COVERAGE = 0.8  # nominal coverage of a predicted interval
Z = 1.2816  # distance from the mean to each end of that interval, in standard deviations


@dataclass(frozen=True)
class Belief:
    """The belief about the logarithm of a node's gain over its parent's program, as a mean and a standard deviation."""

    mean: float
    deviation: float

    @property
    def gain(self) -> float:
        return exp(self.mean)

    @property
    def low(self) -> float:
        """Returns the lower end of the interval that should contain 80 % of the measured gains."""
        return exp(self.mean - Z * hypot(self.deviation, NOISE))

    @property
    def high(self) -> float:
        return exp(self.mean + Z * hypot(self.deviation, NOISE))

    def drawn(self, draw: Random) -> float:
        """Returns a random sample of the logarithm of the gain, for Thompson sampling."""
        return draw.gauss(self.mean, self.deviation)


class Posterior:
    """`records`: the record of each strategy or combination, from this run and earlier runs on this kind of device."""

    def __init__(self, records: Mapping[str, Record]):
        self.records = {frozenset(parts(name)): record for name, record in records.items()}
        tried, kept = sum(r.tried for r in records.values()), sum(r.kept for r in records.values())
        self.overall = (kept + PRIOR) / (tried + PRIOR)

    def share(self, strategies: Iterable[str]) -> tuple[float, float]:
        """Returns the share of a promise that these strategies keep, as (mean, weight in tries). A combination that contains only some of them counts
        proportionally."""
        wanted, tried, kept = frozenset(strategies), 0.0, 0.0
        for names, record in self.records.items():
            alike = len(names & wanted) / len(names | wanted) if names & wanted else 0.0
            tried, kept = tried + alike * record.tried, kept + alike * record.kept
        return (kept + WEIGHT * self.overall) / (tried + WEIGHT), tried + WEIGHT

    def of(self, strategies: Iterable[str], promise: float | None, ceiling: float | None = None) -> Belief:
        """Returns the belief. `ceiling`: the gain that would bring the parent's program to its floor; None if no floor is known."""
        bold = promise if promise is not None else NO_PROMISE
        most = min(bold, ceiling) if ceiling is not None and ceiling > 1 else bold
        size = log(most) if most > 1 else 0.0
        mean, weight = self.share(strategies)
        return Belief(mean * size, SPREAD * (1 + 1 / weight) ** 0.5 * size)


@dataclass(frozen=True)
class Prediction:
    """One attempt: the belief, the author's promise, and the actual gain (1 if no program was correct)."""

    belief: Belief
    promise: float | None
    came: float

    @property
    def within(self) -> bool:
        return self.belief.low <= self.came <= self.belief.high


@dataclass(frozen=True)
class Marks:
    """The accuracy of a run's predictions. `off` and `promises_off`: the factors, as geometric means, by which the beliefs and the promises were off;
    1 means exact."""

    predictions: int = 0
    within: int = 0
    off: float | None = None
    promises_off: float | None = None

    @property
    def said(self) -> str:
        """Returns a sentence about the accuracy, or "" if nothing has been predicted yet."""
        if not self.predictions:
            return ""
        text = f"{self.within} of {self.predictions} gains fell into the interval predicted for {100 * COVERAGE:.0f} % of them"
        if self.off is not None:
            text += f"; beliefs missed by {100 * (self.off - 1):.0f} % on average"
        if self.promises_off is not None:
            text += f", the promises themselves by {100 * (self.promises_off - 1):.0f} %"
        return f"{text}."


@dataclass
class Track:
    """All predictions of a run."""

    made: list[Prediction] = field(default_factory=list)

    @property
    def marks(self) -> Marks:
        promised = [p for p in self.made if p.promise is not None and p.promise > 0]
        return Marks(
            len(self.made),
            sum(p.within for p in self.made),
            _missed([(p.belief.gain, p.came) for p in self.made]),
            _missed([(p.promise or 1.0, p.came) for p in promised]),
        )


def _missed(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Returns the geometric mean of the factors between the two figures of each pair, or None if there are no pairs."""
    return exp(sum(abs(log(said / came)) for said, came in pairs) / len(pairs)) if pairs else None
