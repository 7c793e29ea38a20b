"""Determines how far a state entry may deviate from its fp64 value if it depends on rounding, as averages of zero-mean values and everything
downstream of a decision do.

Batch statistics of zero-mean values are rounding noise, and so are their averages. A program with sound arithmetic may have more noise than plain
arithmetic. For example, a folded `x * scale + shift` rounds `shift` once for all elements. By contrast, errors from rounding each element separately
average out with the square root of the number of elements. For such entries, the value only has to remain noise; trials with random weights check the
same entries exactly.

A batch of two close elements is normalised either to plus and minus one or to minus and plus one, and rounding decides which. Everything downstream
changes as well: either a few elements, or all of them slightly, and possibly more in one run than in the next ten.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from verifier.correctness.bounds import FLIPPED, bound, chaotic_error, deviation, no_oracle, root_mean_square, tolerated
from verifier.float8 import continuous
from verifier.task import Precision

NOISE_ROOM = 1024
DECIDED = 16.0  # factor applied to plain arithmetic's error, replacing `correctness.W` if plain arithmetic decides anything differently from fp64
MOST_DECIDED = 2 * FLIPPED  # like `FLIPPED`, but for eager's elements; it is higher because plain arithmetic provides further evidence


@dataclass
class Allowance:
    limit: float
    tolerated: float  # share of elements that may have larger errors
    noise: bool  # whether no digit is meaningful


def allowance(own: torch.Tensor, exact: torch.Tensor, drawn: list[float], share: float, precision: Precision, decided: bool) -> Allowance | None:
    """Computes the allowance for a floating-point entry from the errors of plain arithmetic and the share of its decisions that differ. The value of
    the entry is `own` in eager and `exact` in fp64. `decided` indicates whether plain arithmetic decided anything differently from fp64 in the same
    call, in this entry or another one. Returns null if eager is far from fp64 for no known reason."""
    chaotic = chaotic_error(own.dtype)
    error, flipped = deviation(own, exact, MOST_DECIDED)
    worst = max(drawn, default=0.0)
    limit, room = bound(error, drawn, own.dtype, precision), tolerated(flipped, share, own.numel())
    if worst > 1 or (error > chaotic and worst > chaotic):
        return Allowance(NOISE_ROOM * limit, room, noise=True)
    if error > chaotic and not decided:
        return None
    if decided and worst > no_oracle(own.dtype):
        limit, room = max(limit, DECIDED * worst), max(room, FLIPPED)
    return Allowance(limit, room, noise=False)


class Inherited:
    """The error that plain arithmetic has accumulated in the state since the state was set. In an average, this error persists in later calls but
    does not grow."""

    def __init__(self) -> None:
        self.errors: dict[int, tuple[float, float]] = {}  # per entry: the largest error, and the magnitude to which it is relative
        self.decided = False

    def add(self, state: Sequence[torch.Tensor], errors: Sequence[list[float]]) -> list[list[float]]:
        """Adds the errors of one more call, which produced fp64's `state`, including the inherited error."""
        return [self._with(index, exact, drawn) for index, (exact, drawn) in enumerate(zip(state, errors, strict=True))]

    def _with(self, index: int, exact: torch.Tensor, drawn: list[float]) -> list[float]:
        size = root_mean_square(exact) if continuous(exact) and not exact.is_complex() and exact.numel() else math.nan
        if not math.isfinite(size):
            return drawn
        size = max(size, 1e-300)
        error, of = self.errors.get(index, (0.0, size))
        error *= min(1.0, of / size)
        self.errors[index] = max([error, *filter(math.isfinite, drawn)]), size
        return [*drawn, error] if error else drawn
