"""How far an entry of the state may deviate from fp64's where rounding decides: averages of zero-mean values, and whatever depends on a decision.

Batch statistics of zero-mean values are rounding noise, and so are their averages. A program whose arithmetic is sound may have more noise
than plain arithmetic: a folded `x * scale + shift` rounds `shift` once for all elements, where the rounding of each averages out by the square root
of their number. The value must only remain noise here; trials with random weights check the same entries exactly.

A batch of two close elements is normalised to plus and minus one, or to minus and plus one: rounding decides. Whatever follows moves with it, in
a few elements or in all by a little, and by more in one run than in the next ten.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from verifier.correctness.bounds import FLIPPED, bound, chaotic_error, deviation, no_oracle, root_mean_square, tolerated
from verifier.task import Precision

NOISE_ROOM = 1024
DECIDED = 16.0  # factor on plain arithmetic's error, in place of `correctness.W`, where it decides something differently from fp64
MOST_DECIDED = 2 * FLIPPED  # share of eager's elements up to which decisions can be distinguished from noise here, where plain arithmetic tells more


@dataclass
class Allowance:
    limit: float
    tolerated: float  # share of elements that may be off by more
    noise: bool  # no digit is meaningful


def allowance(own: torch.Tensor, exact: torch.Tensor, drawn: list[float], share: float, precision: Precision, decided: bool) -> Allowance | None:
    """Computes the allowance for a floating entry that is `own` in eager and `exact` in fp64, from plain arithmetic's errors and share. `decided`: in
    the same call plain arithmetic decides something differently from fp64, in this entry or another. Null where eager is far from fp64 and nothing
    explains it."""
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
    """The error that plain arithmetic has left in the state since it was set. In an average it persists after the next call without growing."""

    def __init__(self) -> None:
        self.errors: dict[int, tuple[float, float]] = {}  # for each entry: the largest error, and the size to which it is relative
        self.decided = False

    def add(self, state: Sequence[torch.Tensor], errors: Sequence[list[float]]) -> list[list[float]]:
        """Adds the errors of one more call that led to fp64's `state`, including the inherited error."""
        return [self._with(index, exact, drawn) for index, (exact, drawn) in enumerate(zip(state, errors, strict=True))]

    def _with(self, index: int, exact: torch.Tensor, drawn: list[float]) -> list[float]:
        size = root_mean_square(exact) if exact.is_floating_point() and exact.numel() else math.nan
        if not math.isfinite(size):
            return drawn
        size = max(size, 1e-300)
        error, of = self.errors.get(index, (0.0, size))
        error *= min(1.0, of / size)
        self.errors[index] = max([error, *filter(math.isfinite, drawn)]), size
        return [*drawn, error] if error else drawn
