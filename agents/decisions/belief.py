"""What a node is believed to bring: a normal posterior over how much of a promise is kept, and how well such beliefs came true.

The unit is that of the ledger (`agents.strategies.ledger`): `kept` of one try is the realised over the promised gain, as logarithms; 0 where the
program was not right. Three levels shrink towards each other: a strategy's tries towards all tries that are known, those towards the ledger's
prior (two tries that kept their promise exactly). So no number of the author's own stands in a belief but the promise, which is discounted by what
such promises came to, and which never exceeds what the floor leaves.

The model: kept share of a node ~ N(m, SPREAD^2), with m ~ N(mean, SPREAD^2 / weight); the gain is exp(kept share x log promise).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, hypot, log
from random import Random

from agents.strategies.combined import parts
from agents.strategies.ledger import PRIOR, Record

SPREAD = 0.6  # of the kept share, from try to try
WEIGHT = 2.0  # tries that all strategies together count for, beside a strategy's own
NOISE = 0.02  # of the logarithm of a measured gain
NO_PROMISE = 1.15  # what is taken for the promise of a node whose author named none
COVERAGE = 0.8  # of a predicted interval
Z = 1.2816  # standard deviations on each side of it


@dataclass(frozen=True)
class Belief:
    """What is believed of the logarithm of a node's gain over its parent's program: its mean, and its standard deviation."""

    mean: float
    deviation: float

    @property
    def gain(self) -> float:
        return exp(self.mean)

    @property
    def low(self) -> float:
        """Returns the lower end of the interval in which 80 % of measured gains are to lie."""
        return exp(self.mean - Z * hypot(self.deviation, NOISE))

    @property
    def high(self) -> float:
        return exp(self.mean + Z * hypot(self.deviation, NOISE))

    def drawn(self, draw: Random) -> float:
        """A logarithm of a gain as it may be: what Thompson sampling goes by."""
        return draw.gauss(self.mean, self.deviation)


class Posterior:
    """`records`: by strategy or combination, those of earlier runs on this kind of device and of this run together."""

    def __init__(self, records: Mapping[str, Record]):
        self.records = {frozenset(parts(name)): record for name, record in records.items()}
        tried, kept = sum(r.tried for r in records.values()), sum(r.kept for r in records.values())
        self.overall = (kept + PRIOR) / (tried + PRIOR)

    def share(self, strategies: Iterable[str]) -> tuple[float, float]:
        """(mean, weight in tries) of the share of a promise that these strategies keep. A combination that shares some of them counts in part."""
        wanted, tried, kept = frozenset(strategies), 0.0, 0.0
        for names, record in self.records.items():
            alike = len(names & wanted) / len(names | wanted) if names & wanted else 0.0
            tried, kept = tried + alike * record.tried, kept + alike * record.kept
        return (kept + WEIGHT * self.overall) / (tried + WEIGHT), tried + WEIGHT

    def of(self, strategies: Iterable[str], promise: float | None, ceiling: float | None = None) -> Belief:
        """`ceiling`: the gain at which the parent's program would run at its floor; null where no floor is known."""
        bold = promise if promise is not None else NO_PROMISE
        most = min(bold, ceiling) if ceiling is not None and ceiling > 1 else bold
        size = log(most) if most > 1 else 0.0
        mean, weight = self.share(strategies)
        return Belief(mean * size, SPREAD * (1 + 1 / weight) ** 0.5 * size)


@dataclass(frozen=True)
class Prediction:
    """One attempt: what was believed, what its author promised, and the gain that came; 1 where no program was right."""

    belief: Belief
    promise: float | None
    came: float

    @property
    def within(self) -> bool:
        return self.belief.low <= self.came <= self.belief.high


@dataclass(frozen=True)
class Marks:
    """How a run's predictions came true. `off` and `promises_off`: the factor by which they missed, as a geometric mean; 1 is exact."""

    predictions: int = 0
    within: int = 0
    off: float | None = None
    promises_off: float | None = None

    @property
    def said(self) -> str:
        """A sentence; empty where nothing was predicted yet."""
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
    """The predictions of a run."""

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
    """Geometric mean of the factors between two figures each; null where there are none."""
    return exp(sum(abs(log(said / came)) for said, came in pairs) / len(pairs)) if pairs else None
