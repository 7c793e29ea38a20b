"""The distribution of errors over a tensor: quantiles over elements and over rows, in addition to the largest error.

A single bound for the largest error must be as wide as the worst row requires. If a divisor nearly cancels in that row, PyTorch itself is far off,
and all other rows could be computed in 16 bits undetected. Therefore, errors are also measured relative to the row of each element. Their quantiles
and each row's error are compared with those of PyTorch and plain arithmetic at the same positions. For large tensors, a different sample of rows is
checked each time.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from verifier.correctness.bounds import ULPS, K, epsilon
from verifier.float8 import continuous
from verifier.task import Precision

SHORT, LONG = 16, 1024  # elements per row: shorter and longer rows are regrouped
BLOCK = 64  # elements per group, where groups replace rows that are too short
ROWS = 1024  # maximum number of rows that are checked
LEAST = 256  # number of elements below which quantiles are meaningless
QUANTILES = (0.5, 0.9)
W = 3.0  # allowed multiple of the quantile of plain arithmetic
ROOM = 16.0  # allowed multiple of the error of PyTorch or plain arithmetic in the same row
STRAY = 0.02  # share of rows that may have larger errors, because both errors are partly due to chance
FAINT = 2.0**-20  # fraction of the root mean square over all rows; in rows of smaller magnitude, errors are relative to this value instead
DEEP = 8  # minimum row length for which "more than half" is meaningful


@dataclass(frozen=True)
class Rows:
    """The elements that are checked: `count` runs of `length` elements; `starts` holds their positions in the flat tensor."""

    starts: torch.Tensor
    length: int


@dataclass
class Spread:
    """The distribution of errors: quantiles over elements and over rows, and each row's error."""

    elements: tuple[float, ...]
    rows: tuple[float, ...]
    each: torch.Tensor

    @property
    def quantiles(self) -> tuple[float, ...]:
        return (*self.elements, *self.rows)


def rows_of(tensor: torch.Tensor, draws: random.Random, most: int = ROWS) -> Rows | None:
    """Samples at most `most` rows of a large tensor. Returns null if the tensor has too few elements."""
    numel = tensor.numel() * (2 if tensor.is_complex() else 1)
    if numel < LEAST or not continuous(tensor):
        return None
    length = tensor.shape[-1] if tensor.dim() else 1
    if not SHORT <= length <= LONG:
        length = BLOCK if length < SHORT else LONG
    count = numel // length
    if count < 2:
        length, count = numel // 4, 4
    chosen = sorted(draws.sample(range(count), most)) if count > most else list(range(count))
    return Rows(torch.tensor(chosen, dtype=torch.int64) * length, length)


def spread(value: torch.Tensor, expected: torch.Tensor, rows: Rows) -> Spread:
    """Computes the spread. Excludes elements that are non-finite in either tensor, because their masks are compared elsewhere."""
    a, b = (_taken(tensor, rows) for tensor in (value, expected))
    finite = a.isfinite() & b.isfinite()
    a, b = torch.where(finite, a, 0.0), torch.where(finite, b, 0.0)
    size = b.square().mean(-1, keepdim=True).sqrt_().clamp_min_(max(FAINT * float(b.square().mean().sqrt()), 1e-300))
    apart = (a - b).abs_()
    each = apart.square().mean(-1).sqrt_().div_(size[:, 0])
    elements = apart.div_(b.abs_() + size).flatten()
    return Spread(_quantiles(elements), _quantiles(each), each)


def _taken(tensor: torch.Tensor, rows: Rows) -> torch.Tensor:
    """Returns the rows in fp64 with the shape [rows, length]."""
    flat = (torch.view_as_real(tensor) if tensor.is_complex() else tensor).reshape(-1)
    runs = flat[: flat.numel() // rows.length * rows.length].view(-1, rows.length)
    at = (rows.starts // rows.length).to(flat.device)
    return (runs if len(at) == len(runs) else runs[at]).double()


def _quantiles(values: torch.Tensor) -> tuple[float, ...]:
    return tuple(float(values.kthvalue(max(1, round(q * values.numel()))).values) for q in QUANTILES)


def limits(own: Spread, plain: Sequence[Spread], dtype: torch.dtype, precision: Precision) -> tuple[float, ...]:
    """Computes the limit on each quantile from PyTorch's own quantile and, if measured, from that of plain arithmetic."""
    least = ULPS * epsilon(dtype)
    drawn = [max((one.quantiles[at] for one in plain), default=0.0) for at in range(len(own.quantiles))]
    return tuple(max(K[precision] * mine, W * rough, least) for mine, rough in zip(own.quantiles, drawn, strict=True))


def beyond(found: Spread, most: Sequence[float]) -> str:
    """Reports which quantile exceeds its limit. Returns an empty string if none does."""
    kinds = [f"{q:.0%} of the {what}" for what in ("elements", "rows") for q in QUANTILES]
    for kind, error, limit in zip(kinds, found.quantiles, most, strict=True):
        if error > limit:
            return f"the error that {kind} do not exceed is {error:.3g}, more than {limit:.3g}: less precise than the policy in most of the output"
    return ""


def stray_rows(found: Spread, own: Spread, plain: Sequence[Spread], dtype: torch.dtype, decided: float) -> str:
    """Reports how many rows have larger errors than PyTorch and plain arithmetic have in the same rows. Returns an empty string if none has.
    `decided` is the share of rows in which rounding may change a decision."""
    least = ULPS * epsilon(dtype)
    usual = torch.stack([own.each, *(one.each for one in plain)]).max(0).values.mul(ROOM).clamp_min(least)
    off = int((found.each > usual).sum())
    if off <= (STRAY + decided) * found.each.numel() + 1:
        return ""
    return f"{off:,} of {found.each.numel():,} rows are off by more than {ROOM:g} times what PyTorch is off by in them"


def clusters(wrong: torch.Tensor) -> int:
    """Counts rows in which more than half of the elements are wrong. `wrong` holds booleans in the shape of an output."""
    length = wrong.shape[-1] if wrong.dim() else 1
    if wrong.dim() < 2 or length < DEEP:
        return 0
    return int((wrong.reshape(-1, length).sum(-1) * 2 > length).sum())
