"""Measures errors along every dimension of an output: heads, channels, columns.

A head or column whose elements are much smaller than the others hardly affects any norm over rows or over the whole tensor, so it could be computed
in 16 bits undetected. Therefore, the error of each slice is measured relative to that slice, and compared with the errors of PyTorch and plain
arithmetic in the same slice. The error is the upper quartile over a slice's elements, which does not depend on a single element that nearly cancels.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from verifier.correctness.bounds import ULPS, epsilon
from verifier.correctness.spread import FAINT, ROOM, STRAY

LEAST = 16  # minimum number of elements in a slice
MANY = 64  # minimum number of elements in a slice whose error cannot be due to chance
ELEMENTS, SLICES = 256, 512  # maximum number of elements per slice, and of slices per dimension, that are checked
QUANTILE = 0.75
LUCK = 8  # number of ill-conditioned slices of which PyTorch may be accurate in one by luck
TAIL = 4.0  # multiple of the largest usual error of a dimension, up to which an error can be due to such luck


@dataclass(frozen=True)
class Axis:
    """The elements that are checked along one dimension: `at` holds their positions in the flat tensor, one row per slice."""

    dimension: int
    at: torch.Tensor


def axes_of(tensor: torch.Tensor, draws: random.Random) -> list[Axis]:
    """Samples slices along every dimension that has several slices with enough elements."""
    shape = (torch.view_as_real(tensor) if tensor.is_complex() else tensor).shape
    numel, found = math.prod(shape), []
    for dimension, size in enumerate(shape):
        rest, inner = numel // max(size, 1), math.prod(shape[dimension + 1 :])
        if size < 2 or rest < LEAST:
            continue
        slices = torch.tensor(sorted(draws.sample(range(size), min(size, SLICES))))
        places = torch.tensor(sorted(draws.sample(range(rest), min(rest, ELEMENTS))))
        flat = places // inner * (size * inner) + places % inner
        found.append(Axis(dimension, slices[:, None] * inner + flat[None, :]))
    return found


def errors(value: torch.Tensor, expected: torch.Tensor, axes: Sequence[Axis]) -> list[torch.Tensor]:
    """Returns the error of each slice of each axis, relative to the slice's mean magnitude. Elements that are non-finite in either tensor count as
    correct, because their masks are compared elsewhere."""
    flat = [(torch.view_as_real(tensor) if tensor.is_complex() else tensor).reshape(-1) for tensor in (value, expected)]
    found = []
    for axis in axes:
        a, b = (tensor[axis.at.to(tensor.device)].double() for tensor in flat)
        finite = a.isfinite() & b.isfinite()
        a, b = torch.where(finite, a, 0.0), torch.where(finite, b, 0.0)
        size = b.abs().mean(-1, keepdim=True).clamp_min_(max(FAINT * float(b.square().mean().sqrt()), 1e-300))
        off = (a - b).abs_().div_(b.abs_() + size)
        found.append(off.kthvalue(max(1, round(QUANTILE * off.shape[-1])), dim=-1).values)
    return found


def stray(found: Sequence[torch.Tensor], usual: Sequence[Sequence[torch.Tensor]], axes: Sequence[Axis], dtype: torch.dtype, decided: float) -> str:
    """Reports how many slices have larger errors than the `usual` ones (those of PyTorch and plain arithmetic) in the same slices. Returns an empty
    string if there are not too many. `decided` is the share of elements that rounding may decide.

    If a step is ill-conditioned in some slices (for example, a softmax over two nearly equal scores), one rounding error determines the error of a
    whole slice, and PyTorch may be accurate there by luck. If PyTorch has many such errors, a few more of similar size are therefore allowed."""
    for number, (axis, off) in enumerate(zip(axes, found, strict=True)):
        typical = torch.stack([one[number] for one in usual]).max(0).values
        over = off > typical.mul(ROOM).clamp_min(ULPS * epsilon(dtype))
        unlucky = int((over & (off <= TAIL * typical.max())).sum())
        conditioned = int((typical > ROOM * typical.median()).sum())
        count, slices = int(over.sum()) - min(unlucky, conditioned // LUCK), off.numel()
        allowed = decided / (1 - QUANTILE) * slices + (STRAY * slices + 1 if axis.at.shape[-1] < MANY else 0)
        if count > allowed:
            said = f"{count:,} of {slices:,} slices along dimension {axis.dimension} are off by over {ROOM:g} times what PyTorch is off by there"
            return f"{said}: less precise than the policy"
    return ""
