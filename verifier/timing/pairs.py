"""Pairs of a program and eager, each in its own process, together with the sides that are timed in turn with them and the estimates from their
samples."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from verifier.report import Baseline, Comparison, Interval, Rival
from verifier.timing.blocks import Side
from verifier.timing.idleness import Watch
from verifier.timing.intervals import Estimate, Repeatability, estimate
from verifier.timing.outside import charge, claims, middle, unsteady

USELESS = 8.0  # ratio of high to low above which an interval around 1 gives no verdict, because the machine is too busy for a measurement
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass
class Pair:
    """The program and eager, each in its own process, and other sides timed in turn with them."""

    program: Side
    baselines: list[Side]
    watch: Watch
    round: int = 0  # pairs of the same round were timed in the same blocks

    @property
    def sides(self) -> list[Side]:
        return [self.program, *self.baselines]

    def claim_unseen(self) -> bool:
        """Returns whether the program seems fast enough to need confirmation by the judge's clock while that clock is still too unsteady to give it.
        More calls make it steadier."""
        program, eager = self.program, self.baselines[0]
        return claims(program, eager) and unsteady(eager) > middle(eager.laps.inner) - middle(program.laps.inner)

    def charge(self) -> None:
        """Adds to the calls of the program, and of a rival, the time outside their intervals that exceeds eager's."""
        eager = self.baselines[0]
        for side in (self.program, *(side for side in self.baselines if side.name == "rival")):
            side.charged = charge(side, eager)


def useless(speedup: Interval) -> bool:
    """Returns whether an interval contains 1 and is so wide that it gives no verdict."""
    return speedup.high / max(speedup.low, 1e-9) > USELESS and speedup.low < 1 < speedup.high


def estimate_of(pairs: list[Pair], name: Baseline | Rival, known: Repeatability, seed: int) -> Estimate:
    """Estimates the program against one baseline, over the pairs that include it."""
    found = [(pair, side) for pair in pairs for side in pair.baselines if side.name == name]
    program, baseline = ([side.samples() for side in sides] for sides in ([pair.program for pair, _ in found], [side for _, side in found]))
    return estimate(program, baseline, known, seed, [pair.round for pair, _ in found])


def compare(pairs: list[Pair], name: Baseline | Rival, known: Repeatability, seed: int) -> Comparison:
    found = [(pair.program, side) for pair in pairs for side in pair.baselines if side.name == name]
    said = estimate_of(pairs, name, known, seed)
    return Comparison(
        baseline=name,
        speedup=said.interval,
        program_ms=said.program_ms,
        baseline_ms=said.baseline_ms,
        blocks=sum(len(program.blocks) for program, _ in found),
        program_samples_ms=[block for program, _ in found for block in program.samples().tolist()],
        baseline_samples_ms=[block for _, side in found for block in side.samples().tolist()],
        processes=[index for index, (program, _) in enumerate(found) for _ in program.blocks],
        rounds=[pair.round for pair in pairs for side in pair.baselines if side.name == name],
    )


def shuffled(together: Callable[[list[Item]], list[Result]], items: list[Item], seed: int) -> list[Result]:
    """Returns the results of `together` for `items` in their order, but calls it with the items in random order. Chance thus decides which of the
    waiting processes becomes the program's; this matters because the oldest process had the first choice of the host's memory."""
    order = random.Random(seed).sample(range(len(items)), len(items))
    results = dict(zip(order, together([items[index] for index in order]), strict=True))
    return [results[index] for index in range(len(items))]
