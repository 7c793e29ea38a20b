"""How far an entry of the state may be from fp64's where rounding decides: averages of what has mean zero, and what follows a decision.

Batch statistics of what has mean zero are rounding noise, and so are the averages of them. A program whose arithmetic is sound may have more noise
than plain arithmetic: a folded `x * scale + shift` rounds `shift` once for all elements, where the rounding of each averages out by the square root
of their number. What must hold is that the value stays noise; trials with random weights hold the same entries to their value.

A batch of two close elements is normalised to plus and minus one, or to the other way round: rounding decides. Whatever follows moves with it, in
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
DECIDED = 16.0  # times plain arithmetic's error, in the place of `correctness.W`, where it decides something otherwise than fp64
MOST_DECIDED = 2 * FLIPPED  # share of eager's elements up to which decisions are told from noise here, where plain arithmetic tells more


@dataclass
class Allowance:
    limit: float
    tolerated: float  # share of elements that may be off by more
    noise: bool  # no digit says anything


def allowance(own: torch.Tensor, exact: torch.Tensor, drawn: list[float], share: float, precision: Precision, decided: bool) -> Allowance | None:
    """Of a floating entry that is `own` in eager and `exact` in fp64, from plain arithmetic's errors and share. `decided`: in the same call plain
    arithmetic decides something otherwise than fp64, in this entry or in another. Null where eager is far from fp64 and nothing explains that."""
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
    """What plain arithmetic has left in the state since it was set: in an average it is still there after the next call, and no larger."""

    def __init__(self) -> None:
        self.errors: dict[int, tuple[float, float]] = {}  # of each entry: the largest error, and the size to which it is relative
        self.decided = False

    def add(self, state: Sequence[torch.Tensor], errors: Sequence[list[float]]) -> list[list[float]]:
        """The errors of one more call that led to fp64's `state`, with the inherited one."""
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
