"""One output of a call or one entry of the state: its expected value, and how far a program's value may deviate from it, both overall and in its
parts."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import torch

from verifier.correctness import slices, spread
from verifier.correctness.bounds import differing, relative, root_mean_square
from verifier.correctness.slices import Axis
from verifier.correctness.spread import Rows, Spread
from verifier.float8 import continuous, steps
from verifier.judge.memory import large
from verifier.task import Precision

_DRAWS = random.SystemRandom()  # not seeded, so a program cannot know which rows are checked
MANY_DECIDED = 0.05  # if rounding decides more than this share of elements, the quantiles include them
COARSE = 16  # minimum ratio of the integers' range to the largest difference due to rounding; a smaller ratio suggests that they encode an ordering
CLUSTERS = 4  # allowed multiple of the number of whole rows that PyTorch or plain arithmetic decides differently


@dataclass
class Leaf:
    """The expected value and the bound."""

    reference: torch.Tensor
    alternative: torch.Tensor  # eager's own value
    error: float  # error of eager relative to `reference`
    share: float  # share of elements that eager decides differently
    limit: float
    tolerated: float = 0.0  # share of elements that may have larger errors
    precise: bool = True  # whether `reference` was computed in fp64
    plain: list[Spread] = field(default_factory=list)  # plain arithmetic's errors, one per draw
    plain_step: int = 0  # the largest integer difference in plain arithmetic
    plain_clusters: int = 0
    plain_slices: list[list[torch.Tensor]] = field(default_factory=list)
    _rows: Rows | None = None
    _own: Spread | None = None
    _axes: list[Axis] | None = None
    _own_slices: list[torch.Tensor] = field(default_factory=list)

    @property
    def floating(self) -> bool:
        return continuous(self.alternative)

    @property
    def own(self) -> Spread | None:
        """Returns the distribution of eager's errors over a fixed sample of rows, or null if it is not informative."""
        if self._own is None and self._informative:
            self._rows = self._rows or spread.rows_of(self.alternative, _DRAWS)
            self._own = spread.spread(self.alternative, self.reference, self._rows) if self._rows is not None else None
        return self._own

    @property
    def _informative(self) -> bool:
        return self.precise and self.reference is not self.alternative and self.tolerated <= MANY_DECIDED

    @property
    def axes(self) -> list[Axis]:
        """Returns a fixed sample of slices along every dimension. It is empty if eager's errors are not informative."""
        if self._axes is None and self.floating and self._informative and not large(self.reference.nbytes):
            self._axes = slices.axes_of(self.alternative, _DRAWS)
            self._own_slices = slices.errors(self.alternative, self.reference, self._axes)
        return self._axes or []

    def add_plain(self, rough: torch.Tensor) -> None:
        """Adds another draw of plain arithmetic, in fp64 for floating-point tensors."""
        if not self.floating:
            self.plain_step = max(self.plain_step, _step(rough, self.reference))
        if self.precise and self.own is not None and self._rows is not None:
            self.plain.append(spread.spread(rough, self.reference, self._rows))
        if self.precise and self.axes:
            self.plain_slices.append(slices.errors(rough, self.reference, self.axes))
        self.plain_clusters = max(self.plain_clusters, self._clusters(rough))

    def quantiles(self, precision: Precision) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
        """Returns the limits on the quantiles, and eager's own quantiles."""
        own = self.own
        return None if own is None else (spread.limits(own, self.plain, self.alternative.dtype, precision), own.quantiles)

    def finer(self, value: torch.Tensor, precision: Precision) -> str:
        """Describes what is wrong with a `value` whose largest error is within the bound. Returns an empty string if it is correct."""
        if self.tolerated > 0 and not large(value.nbytes):
            most = max(self._clusters(self.alternative), self.plain_clusters)
            found = self._clusters(value)
            if found > (CLUSTERS * most + 1 if most else 0):
                return f"{found:,} rows are wrong as a whole, but rounding decides only single elements"
        if not self.floating:
            return self._too_far(value)
        if not self.precise and self.error == 0.0:
            return self._beside_eager(value)
        own = self.own
        if own is not None and self._rows is not None:
            seen = spread.spread(value, self.reference, self._rows)
            said = spread.beyond(seen, spread.limits(own, self.plain, value.dtype, precision))
            decided = min(self.tolerated * self._rows.length, 1.0)
            said = said or spread.stray_rows(seen, own, self.plain, value.dtype, decided)
            if said:
                return said
        if not self.axes:
            return ""
        off = slices.errors(value, self.reference, self.axes)
        return slices.stray(off, [self._own_slices, *self.plain_slices], self.axes, value.dtype, self.tolerated)

    def _beside_eager(self, value: torch.Tensor) -> str:
        """Checks a value that fp64 cannot judge. The bound for the largest error relative to eager must also hold for most elements and rows, each
        relative to its own row."""
        self._rows = self._rows or spread.rows_of(self.alternative, _DRAWS)
        return spread.beyond(spread.spread(value, self.reference, self._rows), [self.limit] * 4) if self._rows is not None else ""

    def _too_far(self, value: torch.Tensor) -> str:
        """Checks integers and float8 numbers. Rounding may put a number on the other side of a boundary, but its error must not exceed that of
        PyTorch or plain arithmetic. An index that rounding decides may have any value."""
        if value.dtype == torch.bool or not value.numel() or self.tolerated == 0:
            return ""
        usual = max(_step(self.alternative, self.reference), self.plain_step)
        numbers = steps(self.reference)
        span = int(numbers.max()) - int(numbers.min())
        found = min(_step(value, self.reference), _step(value, self.alternative))
        if usual * COARSE > span or found <= 2 * usual:
            return ""
        what = "a float8 number is off by" if value.is_floating_point() else "an integer is off by"
        return f"{what} {found:,}{' steps' if value.is_floating_point() else ''}, where PyTorch and plain arithmetic are off by at most {usual:,}"

    def _clusters(self, value: torch.Tensor) -> int:
        if large(value.nbytes):
            return 0
        if not self.floating:
            wrong = differing(value, self.reference)
            return 0 if wrong is None else spread.clusters(wrong)
        real = [torch.view_as_real(tensor) if tensor.is_complex() else tensor for tensor in (value, self.reference)]
        return spread.clusters(relative(real[0], real[1], root_mean_square(real[1]) if real[1].numel() else 0.0) > max(self.limit, self.error))


def _step(value: torch.Tensor, expected: torch.Tensor) -> int:
    """Returns the largest difference between the integers of two tensors or, in steps, between their float8 numbers."""
    if value.dtype == torch.bool or not value.numel():
        return 0
    a, b = steps(value), steps(expected.to(value.dtype))
    return int((a.to(torch.int64) - b.to(torch.int64)).abs().max())
