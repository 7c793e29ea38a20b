"""How often rounding decides something: an index between near equals, a threshold, which of two neighbours is nearer.

Where that happens once in some hundred calls, the few trials hardly ever meet it, and a timed call that does would refuse a sound program. Near
ties are as much rarer as errors are smaller, so they are counted with errors many times those of plain arithmetic, and scaled down.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from verifier.correctness.bounds import FLIPPED, survey

TIMES = (4.0, 16.0, 64.0, 256.0, 512.0, 1024.0)  # plain arithmetic's errors, the smallest first
STEEP = 4.0  # times as many as proportion to the errors gives: then elements are off because errors have grown, not by decisions
ROOM = 4.0  # a sound program's errors may be so many times plain arithmetic's
DOUBT = 1e-4  # probability with which a sound program has more decisions than are allowed


@dataclass(frozen=True)
class Decisions:
    """The decisions in one output: `elements` that one of them changes, and `rate`, how many a call of plain arithmetic has."""

    elements: int
    rate: float

    def allowed(self, calls: int = 1) -> int:
        """Elements that may be off in so many calls together; one decision in any case."""
        return self.elements * max(1, most(ROOM * self.rate * calls))


def measured(counts: Sequence[tuple[float, int]]) -> Decisions | None:
    """Makes `counts`, elements that are off with errors so many times larger, into decisions; null where there are none, where a single size of
    errors shows any, and where they grow much faster than the errors."""
    seen = [(times, count) for times, count in sorted(counts) if count]
    steep = any(more > STEEP * count * larger / times for (times, count), (larger, more) in zip(seen, seen[1:], strict=False))
    if len(seen) < 2 or steep:
        return None
    elements = seen[0][1]
    return Decisions(elements, max(count / elements / times for times, count in seen))


def off(value: torch.Tensor, expected: torch.Tensor, limit: float) -> int:
    """Counts elements that are further off than `limit`; those that differ, where they are not floating."""
    if value.shape != expected.shape or not value.numel():
        return 0
    if not value.is_floating_point() and not value.is_complex():
        return int((value != expected.to(value.dtype)).sum())
    return survey(value, expected, limit).wrong


def told_apart(count: int, value: torch.Tensor) -> int:
    """`count`, or none where so many elements are off that decisions cannot be told from errors that have grown."""
    return count if count <= FLIPPED * value.numel() else 0


def most(mean: float) -> int:
    """Returns the number that a Poisson variable of this mean exceeds with a probability of at most `DOUBT`."""
    if mean > 1000:
        return math.ceil(mean + 4 * math.sqrt(mean))
    number, chance = 0, math.exp(-mean)
    total = chance
    while 1 - total > DOUBT and number < 10_000:
        number += 1
        chance *= mean / number
        total += chance
    return number
