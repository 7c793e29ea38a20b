"""On the CPU: inspects the timed process at one instant in each of several timed calls, so the inspected calls are themselves timed calls.

Calls made only for inspection could differ from the timed calls in any way that a program can notice: their spacing, their number, or the time of
day. No program can distinguish a timed call that will be inspected from any other call. By the time the program is stopped, the judge has seen
everything that it needs. The time of an inspected call is discarded if other calls in its series were not inspected.
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

MANY = 4  # number of counted calls in a series; from this number on, two of them are inspected
FEW = {1: 0.3, 2: 0.5, 3: 0.5}  # by number of calls if there are fewer: probability that a call is inspected, because their times are needed
# The first value is the number of moments at which own code that takes half of the time would be missed less than once in 10,000 measurements. The
# others are the number and the share for own code that was hardly seen.
ENOUGH, FAINT, HARDLY = 16, 32, 0.25
REMEMBERED = 24  # number of calls whose median gives the expected duration of a call


@dataclass(frozen=True)
class Glances:
    """The inspected calls of one series. Maps the number of each call in the series to its instant in ns after the start of the call."""

    sampler: Sampler
    delays: dict[int, int]

    @property
    def calls(self) -> list[int]:
        return sorted(self.delays)

    def over(self, page: SharedPage) -> AbstractContextManager[int]:
        return self.sampler.glances(page, self.delays)


@dataclass
class Glancing:
    """Inspects a process during its timed calls. `rng` must not be known to the program, because it decides which calls are inspected, and when."""

    observing: Observing
    rng: random.Random
    tally: Tally = field(init=False)
    _took: deque[int] = field(default_factory=lambda: deque(maxlen=REMEMBERED))

    def __post_init__(self) -> None:
        self.tally = Tally(self.observing.mapped)

    def choose(self, counted: Sequence[int]) -> Glances | None:
        """Chooses among the counted calls of the next series. Chooses none while the duration of a call is unknown, or if the host has refused
        inspection."""
        sampler = self.observing.sampler
        if not self._took or sampler.error or self.rng.random() > FEW.get(len(counted), 1.0):
            return None
        long = statistics.median(self._took)
        chosen = self.rng.sample(list(counted), 2 if len(counted) >= MANY else 1)
        return Glances(sampler, {call: int(self.rng.random() * long) for call in chosen})

    def add(self, calls: Sequence[Call], glances: Glances | None) -> None:
        """Adds the samples from a series, with all calls of the series."""
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
    """Starts inspecting the timed process. Returns null on a GPU, for a program without machine code of its own, or on a host that does not allow
    inspection. `folder` stores the compiled sampler."""
    if party.device.kind != "cpu" or not artefacts.index:
        return None
    rng = random.Random(secrets.randbits(64))  # not derived from the evaluation's seed, which would otherwise reveal what is inspected
    with suppress(SamplerError):
        return Glancing(Observing(party, artefacts, folder, rng.getrandbits(63)), rng)
    return None
