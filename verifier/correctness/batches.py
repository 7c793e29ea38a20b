"""Compares many small tensors in one batch.

A model may have hundreds of running averages. On a GPU, each separate comparison costs a dozen kernel launches and a synchronisation. Unusual tensors
(non-finite, far off, large, complex, or float8) are left to the functions in `verifier.correctness.bounds`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from verifier.correctness.bounds import Judgement, chaotic_error, deviation, judge
from verifier.float8 import TYPES

SMALL = 1 << 16  # maximum number of elements
FEW = 4  # minimum number of tensors for which batching pays off


def distances(values: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> list[float | None]:
    """Returns `correctness.distance` for each pair: zero for equal integer tensors, and null for a pair that must be compared separately."""
    found: list[float | None] = [None] * len(values)
    groups: dict[tuple[torch.dtype, torch.dtype, torch.device], list[int]] = {}
    for index, (a, b) in enumerate(zip(values, expected, strict=True)):
        apart = a.is_complex() or b.is_complex() or a.dtype in TYPES
        if a.shape == b.shape and a.device == b.device and 0 < a.numel() <= SMALL and not apart:
            groups.setdefault((a.dtype, b.dtype, a.device), []).append(index)
    waiting: list[tuple[list[int], torch.Tensor]] = []
    for (dtype, _, _), members in groups.items():
        if len(members) >= FEW:
            a, b = (torch.cat([tensors[index].flatten() for index in members]) for tensors in (values, expected))
            sizes = torch.tensor([values[index].numel() for index in members], device=a.device)
            owner = torch.repeat_interleave(sizes, output_size=a.numel())
            waiting.append((members, _floating(a, b, owner, sizes) if dtype.is_floating_point else _exact(a, b, owner, sizes)))
    for members, errors in waiting:  # launch all kernels before waiting for the first result
        for index, error in zip(members, errors.tolist(), strict=True):
            found[index] = None if math.isnan(error) else error
    return found


def _floating(a: torch.Tensor, b: torch.Tensor, owner: torch.Tensor, sizes: torch.Tensor) -> torch.Tensor:
    """Returns the norm of each tensor, or NaN if any element is not finite."""
    a, b = a.double(), b.double()
    squares = torch.zeros(len(sizes), dtype=torch.float64, device=a.device).index_add_(0, owner, b.square())
    rms = (squares / sizes).sqrt_()
    relative = (a - b).abs_().div_((b.abs() + rms[owner]).clamp_min_(1e-300))
    relative.masked_fill_(~(a.isfinite() & b.isfinite()), math.nan)
    return torch.zeros_like(squares).scatter_reduce_(0, owner, relative, "amax")


def _exact(a: torch.Tensor, b: torch.Tensor, owner: torch.Tensor, sizes: torch.Tensor) -> torch.Tensor:
    off = torch.zeros(len(sizes), dtype=torch.float64, device=a.device).index_add_(0, owner, (a != b.to(a.dtype)).double())
    return off.masked_fill_(off > 0, math.nan)


def deviations(values: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> list[tuple[float, float]]:
    """Returns `correctness.deviation` for each pair."""
    near = distances(values, expected)
    pairs = zip(values, expected, near, strict=True)
    return [(error, 0.0) if error is not None and error <= chaotic_error(a.dtype) else deviation(a, b) for a, b, error in pairs]


def judgements(
    values: Sequence[torch.Tensor], expected: Sequence[torch.Tensor], limits: Sequence[float], shares: Sequence[float] | None = None
) -> list[Judgement]:
    """Returns `correctness.judge` for each pair."""
    near = distances(values, expected)
    found = []
    for a, b, limit, share, error in zip(values, expected, limits, shares or [0.0] * len(limits), near, strict=True):
        found.append(Judgement(True, error, limit) if error is not None and error <= limit else judge(a, b, limit, share))
    return found
