"""On the CPU: inspects the timed process during some of its timed calls, each at one instant, so that what is inspected is what is timed.

Calls that are made to be inspected may differ from the timed ones in any way that a program can notice: their spacing, their number, the time of day.
No program can tell a timed call that will be inspected from another one, and by the time that it was stopped the judge has seen what it needs. Such a
call's own time does not count, where others of its series do not have this cost.
"""

from __future__ import annotations

import random
import secrets
import statistics
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from verifier.build.artefacts import Artefacts
from verifier.integrity.sampling.native import Sampler, SamplerError
from verifier.integrity.sampling.observing import Observing, Sampled, Tally, within
from verifier.judge.asking import Party
from verifier.shim.clock import SharedPage
from verifier.timing.call import Call

MANY = 4  # counted calls of a series from which two are inspected
FEW = {1: 0.3, 2: 0.5, 3: 0.5}  # probability that one of so few is inspected: their times are needed
# Moments at which own code that takes half of the time would be missed once in more than 10,000 measurements; and a quarter of it, where hardly any
# was seen.
ENOUGH, FAINT, HARDLY = 16, 32, 0.25
REMEMBERED = 24  # calls whose middle is what a call is expected to take


@dataclass(frozen=True)
class Glances:
    """The inspected calls of one series, by their number in it, each with its instant in ns from its beginning."""

    sampler: Sampler
    delays: dict[int, int]

    @property
    def calls(self) -> list[int]:
        return sorted(self.delays)

    def over(self, page: SharedPage) -> AbstractContextManager[int]:
        return self.sampler.glances(page, self.delays)


@dataclass
class Glancing:
    """`rng` must not be known to the program: it decides which calls are inspected, and when."""

    observing: Observing
    rng: random.Random
    tally: Tally = field(init=False)
    _took: deque[int] = field(default_factory=lambda: deque(maxlen=REMEMBERED))

    def __post_init__(self) -> None:
        self.tally = Tally(self.observing.mapped)

    def choose(self, counted: Sequence[int]) -> Glances | None:
        """Chooses among the counted calls of the next series; none while it is not known how long a call takes, or where the host has refused."""
        sampler = self.observing.sampler
        if not self._took or sampler.error or self.rng.random() > FEW.get(len(counted), 1.0):
            return None
        long = statistics.median(self._took)
        chosen = self.rng.sample(list(counted), 2 if len(counted) >= MANY else 1)
        return Glances(sampler, {call: int(self.rng.random() * long) for call in chosen})

    def add(self, calls: Sequence[Call], glances: Glances | None) -> None:
        """Adds what was seen in a series with all its calls."""
        self._took.extend(call.inner for call in calls if not call.looked)
        if glances is not None:
            seen = within(glances.sampler.seen, [calls[number] for number in glances.calls])
            self.observing.refresh(seen)
            self.tally.add(seen)

    @property
    def wants_more(self) -> bool:
        wanted = ENOUGH if self.result().share > HARDLY else FAINT
        return self.tally.moments < wanted and not self.observing.sampler.error

    def result(self) -> Sampled:
        return self.tally.result()


def begin_glancing(party: Party, artefacts: Artefacts, folder: Path) -> Glancing | None:
    """Begins to inspect the timed process; null on a GPU, for a program without machine code of its own, and on a host that does not allow
    it. `folder` keeps the compiled sampler."""
    if party.device.kind != "cpu" or not artefacts.index:
        return None
    rng = random.Random(secrets.randbits(64))  # not drawn from the evaluation's seed: knowing the seed must not reveal what is inspected
    with suppress(SamplerError):
        return Glancing(Observing(party, artefacts, folder, rng.getrandbits(63)), rng)
    return None
