"""Measures how often rounding changes a decision: the index of one of several nearly equal values, a threshold, or which of two neighbours is nearer.

If that happens once in several hundred calls, the few trials hardly ever encounter it, but a timed call may, and a sound program would then be
rejected. The number of near ties is proportional to the size of the errors. Therefore, they are counted with errors many times larger than those of
plain arithmetic, and the count is scaled down.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from verifier.correctness.bounds import FLIPPED, differing, survey
from verifier.float8 import continuous

TIMES = (4.0, 16.0, 64.0, 256.0, 512.0, 1024.0)  # factors applied to plain arithmetic's errors, in ascending order
STEEP = 4.0  # if the count grows this much faster than the errors, the cause is larger errors rather than decisions
ROOM = 4.0  # factor by which a sound program's errors may exceed those of plain arithmetic
TIE = 16.0  # multiple of plain arithmetic's errors at which a number between two steps moves to another step in almost half of the draws
TIE_DRAWS = 12
DOUBT = 1e-4  # maximum probability that a sound program exceeds the allowed number of decisions


@dataclass(frozen=True)
class Decisions:
    """The decisions in one output. `elements` is the number of elements that one decision changes, and `rate` is the number of decisions per call in
    plain arithmetic."""

    elements: int
    rate: float

    def allowed(self, calls: int = 1) -> int:
        """Returns how many elements may be off in `calls` calls in total. The number always covers at least one decision."""
        return self.elements * max(1, most(ROOM * self.rate * calls))


def measured(counts: Sequence[tuple[float, int]]) -> Decisions | None:
    """Estimates decisions from `counts`, which pairs each number of wrong elements with the factor applied to the errors. Returns null if no elements
    are off, if they are off with only one factor, or if their number grows much faster than the errors."""
    seen = [(times, count) for times, count in sorted(counts) if count]
    steep = any(more > STEEP * count * larger / times for (times, count), (larger, more) in zip(seen, seen[1:], strict=False))
    if len(seen) < 2 or steep:
        return None
    elements = seen[0][1]
    return Decisions(elements, max(count / elements / times for times, count in seen))


def off(value: torch.Tensor, expected: torch.Tensor, limit: float) -> int:
    """Counts the elements whose error exceeds `limit`. For integers, booleans and float8 numbers, counts the elements that differ."""
    if value.shape != expected.shape or not value.numel():
        return 0
    if not continuous(value):
        wrong = differing(value, expected)
        return 0 if wrong is None else int(wrong.sum())
    return survey(value, expected, limit).wrong


def told_apart(count: int, value: torch.Tensor) -> int:
    """Returns `count`, or zero if so many elements are off that decisions cannot be distinguished from larger errors."""
    return count if count <= FLIPPED * value.numel() else 0


def most(mean: float) -> int:
    """Returns the number that a Poisson variable with this mean exceeds with a probability of at most `DOUBT`."""
    if mean > 1000:
        return math.ceil(mean + 4 * math.sqrt(mean))
    number, chance = 0, math.exp(-mean)
    total = chance
    while 1 - total > DOUBT and number < 10_000:
        number += 1
        chance *= mean / number
        total += chance
    return number
