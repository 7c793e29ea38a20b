"""Makes further calls of the timed process, in the same form as timed calls.

Some of them repeat a timed call; others have fresh inputs. Code in the process cannot tell which of them are inspected or how many there will be.
"""

from __future__ import annotations

import contextlib
import random
import statistics
import time
from dataclasses import dataclass, field
from itertools import pairwise

import torch

from verifier.correctness.bounds import deviation
from verifier.correctness.examining import equal
from verifier.correctness.fingerprint import Fingerprint
from verifier.correctness.trials import Trials
from verifier.integrity.timed_process import TimedProcess
from verifier.judge.memory import large
from verifier.timing.blocks import kept
from verifier.timing.call import Call
from verifier.timing.series import Form, Use, Uses, single

Outputs = list[torch.Tensor | Fingerprint]
BEFORE = (3, 17)  # number of uninspected calls before the first inspected one, rounded up to whole series
BEFORE_SECONDS = 1.0  # time limit for these calls on a busy host
SLOW = 0.25  # seconds per call; above this, another call costs more than it reveals
FRESH = 2  # number of input draws
REPEATS = 2  # number of calls of a turn with the remembered call's inputs
ENOUGH = 6  # number of calls with the same inputs, made to find out how exactly a program reproduces its results
SPREAD = 3.0  # calls are different from the timed call if they are this many times as far from it as from each other


@dataclass
class Replays:
    """The times of further calls, in milliseconds. `inner` holds the times of uninspected calls; `seen` holds those of inspected calls."""

    plain: list[float] = field(default_factory=list)
    looked_at: list[float] = field(default_factory=list)
    preempted: list[float] = field(default_factory=list)  # times of all calls that were preempted by other work
    again: list[Outputs] = field(default_factory=list)  # outputs of calls with the same inputs as the remembered call
    recorded: list[Outputs] = field(default_factory=list)  # of those calls, the ones under the recorder

    @property
    def ms(self) -> float:
        """Returns the lower quartile of the calls' times, or zero if there were no calls."""
        values = sorted(self.plain or self.looked_at or self.preempted)
        return statistics.quantiles(values, n=4)[0] if len(values) > 3 else values[0] if values else 0.0


class Replaying:
    """Makes the calls in turns, in the form in which they were timed: as series of the given `form`, or as single calls. `rng` is the judge's
    generator."""

    def __init__(self, timed: TimedProcess, trials: Trials, rng: random.Random, call_ms: float, form: Form | None = None):
        self.timed = timed
        self.rng = rng
        self.replays = Replays()
        self.stateful = bool(trials.reference.mutated)
        self.slow = call_ms > SLOW * 1e3
        reference, big = trials.reference, large(trials.input_bytes)
        seeds = [] if timed.seed is None else [timed.seed]
        fresh = (0 if seeds else 1) if self.slow or big else FRESH
        drawn = [(reference.inputs(seed), seed) for seed in [*(seeds if timed.values is None else []), *(rng.getrandbits(32) for _ in range(fresh))]]
        self.draws = drawn if timed.values is None or timed.seed is None else [(timed.values, timed.seed), *drawn]
        self.form = form
        self.uses = Uses(lambda number: rng.choice(self.draws), random.Random(rng.getrandbits(64)), form) if form is not None else None

    def before(self) -> None:
        """Makes an unpredictable number of calls that are not inspected."""
        until = time.monotonic() + BEFORE_SECONDS
        wanted, made = self.rng.randint(0, 1) if self.slow else self.rng.randint(*BEFORE), 0
        while made < wanted and time.monotonic() < until:
            made += len(self.turn())

    def turn(self, looking: contextlib.AbstractContextManager[object] | None = None, again: bool = False, recorded: bool = False) -> list[Call]:
        """Makes one turn, which the judge inspects with `looking`, and returns its counted calls. With `again`, two of these calls, or the only one,
        have the inputs of the remembered call. `recorded` means that the process records its device work meanwhile."""
        caller, party = self.timed.caller, self.timed.caller.party
        uses = self.uses.next(0) if self.uses is not None else single(lambda number: self.draws[0] if again else self.rng.choice(self.draws), 0)
        if again and self.form is not None:
            values, seed = self.draws[0]
            counted = [number for number, use in enumerate(uses) if use.counted]
            for at in self.rng.sample(counted, min(len(counted), REPEATS)):
                uses[at] = Use(values, seed if self.form.seeded else None, counted=True, new=False)
        party.looking = looking or contextlib.nullcontext()
        try:
            calls = caller.turn(uses, in_series=self.uses is not None)
        finally:
            party.looking = contextlib.nullcontext()
        for use, call in zip([use for use in uses if use.counted], calls, strict=True):
            times = self.replays.preempted if call.preempted else self.replays.plain if looking is None else self.replays.looked_at
            times.append(call.inner / 1e6)
            if self._repeats(use):
                outputs: Outputs = [kept(output) for output in call.outputs]
                self.replays.again = [*self.replays.again[1 - ENOUGH :], outputs]
                self.replays.recorded += [outputs] if recorded else []
        return calls

    def _repeats(self, use: Use) -> bool:
        """Returns whether a use has the remembered call's inputs."""
        values, seed = self.draws[0]
        return self.timed.seed is not None and use.values is values and not use.changes and use.rng in (None, seed)

    def differs(self) -> str:
        """Describes how the calls differ from the timed call although they agree with each other. Such a difference means that the inspected work is
        not the timed work. Returns an empty string if they do not differ. If the task changes its state, the same inputs can give other outputs, so
        the result is empty."""
        if self.timed.seed is None or self.stateful:
            return ""
        if said := self._differs_when_recorded():
            return said
        while (apart := self._apart()) > 0 and len(self.replays.again) < ENOUGH:
            self.turn(again=True)
        again = self.replays.again
        among = max((distance(one, other) for one, other in zip(again, again[1:], strict=False)), default=0.0)
        if apart <= SPREAD * among:
            return ""
        return f"repeated with the same inputs, the timed call gives other outputs (by {apart:.1e}, from each other by {among:.1e})"

    def _differs_when_recorded(self) -> str:
        """Describes how the calls under the recorder differ both from the timed call and from further calls without it, which agree. Returns an empty
        string if they do not. At least two of them must agree with each other: a sum by atomics differs from call to call, recorded or not."""
        recorded = self.replays.recorded
        if len(recorded) < REPEATS or min(distance(outputs, self.timed.outputs) for outputs in recorded) == 0:
            return ""
        own = max(distance(one, other) for one, other in pairwise(recorded))
        apart = min(distance(outputs, self.timed.outputs) for outputs in recorded)
        self.turn(again=True)
        plain = [one for one in self.replays.again if not any(one is other for other in recorded)]
        among = max([own, *(distance(one, self.timed.outputs) for one in plain)])
        if apart <= SPREAD * among:
            return ""
        return f"under the recorder, the timed call gives other outputs (by {apart:.1e}) than without it (by {among:.1e})"

    def _apart(self) -> float:
        """Returns the distance between the timed call and the nearest of these calls."""
        return min((distance(outputs, self.timed.outputs) for outputs in self.replays.again), default=0.0)


def distance(left: Outputs, right: Outputs) -> float:
    """Returns the largest relative deviation between two calls' outputs. The result is infinite if their structures differ."""
    if len(left) != len(right):
        return float("inf")
    return max((_distance(a, b) for a, b in zip(left, right, strict=True)), default=0.0)


def _distance(left: torch.Tensor | Fingerprint, right: torch.Tensor | Fingerprint) -> float:
    if equal(left, right):
        return 0.0
    if isinstance(left, Fingerprint) or isinstance(right, Fingerprint) or left.shape != right.shape or left.dtype != right.dtype:
        return float("inf")
    error, share = deviation(left, right)
    return max(error, share)
