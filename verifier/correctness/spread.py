"""How errors are spread over a tensor: quantiles of elements and of rows, beside the largest error of all.

One bound for the largest error is as wide as the worst row makes it: where a divisor nearly cancels, PyTorch itself is far off, and all others may be
computed in 16 bits. So errors are also taken relative to the row that an element lies in, and their quantiles, and each row's error, are held
against what PyTorch and plain arithmetic have in the same places. Of large tensors a sample of rows is looked at, another one each time.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from verifier.correctness.bounds import ULPS, K, epsilon
from verifier.task import Precision

SHORT, LONG = 16, 1024  # elements of a row: shorter and longer ones are cut anew
BLOCK = 64  # elements, in the place of rows that are too short
ROWS = 1024  # looked at
LEAST = 256  # elements, below which quantiles say nothing
QUANTILES = (0.5, 0.9)
W = 3.0  # times plain arithmetic's quantile
ROOM = 16.0  # times what PyTorch or plain arithmetic is off by in the same row
STRAY = 0.02  # share of rows that may be off by more: chance decides how far each of the two is
FAINT = 2.0**-20  # of all rows' root mean square: a row that is smaller is measured by this
DEEP = 8  # elements that a row has at least, for more than half of them to say something


@dataclass(frozen=True)
class Rows:
    """Which elements are looked at: `count` runs of `length`, by where they begin in the flat tensor."""

    starts: torch.Tensor
    length: int


@dataclass
class Spread:
    """Of errors: quantiles over elements, and over rows; each row's."""

    elements: tuple[float, ...]
    rows: tuple[float, ...]
    each: torch.Tensor

    @property
    def quantiles(self) -> tuple[float, ...]:
        return (*self.elements, *self.rows)


def rows_of(tensor: torch.Tensor, draws: random.Random, most: int = ROWS) -> Rows | None:
    """A sample of at most so many, for tensors that are large; null for those that have too few elements."""
    numel = tensor.numel() * (2 if tensor.is_complex() else 1)
    if numel < LEAST or not (tensor.is_floating_point() or tensor.is_complex()):
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
    """Elements that are not finite in either are left out: masks of them are compared elsewhere."""
    a, b = (_taken(tensor, rows) for tensor in (value, expected))
    finite = a.isfinite() & b.isfinite()
    a, b = torch.where(finite, a, 0.0), torch.where(finite, b, 0.0)
    size = b.square().mean(-1, keepdim=True).sqrt_().clamp_min_(max(FAINT * float(b.square().mean().sqrt()), 1e-300))
    apart = (a - b).abs_()
    each = apart.square().mean(-1).sqrt_().div_(size[:, 0])
    elements = apart.div_(b.abs_() + size).flatten()
    return Spread(_quantiles(elements), _quantiles(each), each)


def _taken(tensor: torch.Tensor, rows: Rows) -> torch.Tensor:
    """[rows, length] in fp64."""
    flat = (torch.view_as_real(tensor) if tensor.is_complex() else tensor).reshape(-1)
    runs = flat[: flat.numel() // rows.length * rows.length].view(-1, rows.length)
    at = (rows.starts // rows.length).to(flat.device)
    return (runs if len(at) == len(runs) else runs[at]).double()


def _quantiles(values: torch.Tensor) -> tuple[float, ...]:
    return tuple(float(values.kthvalue(max(1, round(q * values.numel()))).values) for q in QUANTILES)


def limits(own: Spread, plain: Sequence[Spread], dtype: torch.dtype, precision: Precision) -> tuple[float, ...]:
    """Of each quantile: from PyTorch's own and, where they were measured, plain arithmetic's."""
    least = ULPS * epsilon(dtype)
    drawn = [max((one.quantiles[at] for one in plain), default=0.0) for at in range(len(own.quantiles))]
    return tuple(max(K[precision] * mine, W * rough, least) for mine, rough in zip(own.quantiles, drawn, strict=True))


def beyond(found: Spread, most: Sequence[float]) -> str:
    """Empty, or which quantile is over its limit."""
    kinds = [f"{q:.0%} of the {what}" for what in ("elements", "rows") for q in QUANTILES]
    for kind, error, limit in zip(kinds, found.quantiles, most, strict=True):
        if error > limit:
            return f"the error that {kind} do not exceed is {error:.3g}, more than {limit:.3g}: less precise than the policy in most of the output"
    return ""


def stray_rows(found: Spread, own: Spread, plain: Sequence[Spread], dtype: torch.dtype, decided: float) -> str:
    """Empty, or how many rows are further off than PyTorch and plain arithmetic in the same rows. `decided`: share of rows in which rounding
    may decide something."""
    least = ULPS * epsilon(dtype)
    usual = torch.stack([own.each, *(one.each for one in plain)]).max(0).values.mul(ROOM).clamp_min(least)
    off = int((found.each > usual).sum())
    if off <= (STRAY + decided) * found.each.numel() + 1:
        return ""
    return f"{off:,} of {found.each.numel():,} rows are off by more than {ROOM:g} times what PyTorch is off by in them"


def clusters(wrong: torch.Tensor) -> int:
    """Rows of which more than half are wrong. `wrong`: booleans in the shape of an output."""
    length = wrong.shape[-1] if wrong.dim() else 1
    if wrong.dim() < 2 or length < DEEP:
        return 0
    return int((wrong.reshape(-1, length).sum(-1) * 2 > length).sum())
