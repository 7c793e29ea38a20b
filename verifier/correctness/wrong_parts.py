"""Describes where a tensor is wrong: how many elements, the first of them, the largest error with its bound, and the pattern that they form."""

from __future__ import annotations

import contextlib
import math

import torch

from verifier.correctness.bounds import Judgement, chunk, differing, judge, position, relative
from verifier.float8 import continuous
from verifier.report import WrongTensor

FEW = 4  # maximum number of indices that are listed one by one
DENSE = 0.75  # minimum share of wrong indices among those that a period covers
PERIODS = (2, 4, 8, 16, 32, 64, 128, 256)  # widths of vectors, warps, tiles and blocks
REPEATS = 3  # minimum number of periods along a dimension


def wrong_part(
    name: str, value: torch.Tensor, expected: torch.Tensor, limit: float, share: float = 0.0, judgement: Judgement | None = None
) -> WrongTensor | None:
    """Describes a tensor that is off by `judge` (or by a `judgement` made before). Returns null if it is within its bound, has another shape, or is
    too large to be described in the memory that is left. A complex number counts as two elements, along one more dimension."""
    with contextlib.suppress(torch.OutOfMemoryError):  # a description must not decide the verdict
        return _described(name, value, expected, limit, share, judgement)
    return None


def _described(name: str, value: torch.Tensor, expected: torch.Tensor, limit: float, share: float, judgement: Judgement | None) -> WrongTensor | None:
    if value.shape != expected.shape or not value.numel():
        return None
    found = judgement or judge(value, expected, limit, share)
    if found.ok:
        return None
    bound = found.bound if found.bound is not None else limit
    a, b = (torch.view_as_real(tensor) if tensor.is_complex() else tensor for tensor in (value, expected))
    mask = off_mask(a, b, bound)
    wrong = int(mask.sum())
    if not wrong:
        return None
    first = position(int(mask.to(torch.uint8).argmax()), tuple(b.shape))
    return WrongTensor(
        name=name,
        wrong=wrong,
        elements=b.numel(),
        first=list(first),
        value=_shown(a[first]),
        expected=_shown(b[first]),
        error=found.error if found.error is not None and math.isfinite(found.error) else None,
        bound=bound if continuous(value) else None,
        where=pattern(mask.view(b.shape)),
    )


def off_mask(value: torch.Tensor, expected: torch.Tensor, limit: float) -> torch.Tensor:
    """Returns a flat mask of the elements whose error exceeds `limit`, or of those that differ where equality is required. Works one piece at a time,
    because fp64 copies of whole tensors could take up gigabytes."""
    a, b = value.flatten(), expected.flatten()
    if not continuous(value):
        found = differing(a, b)
        return torch.zeros(b.numel(), dtype=torch.bool, device=b.device) if found is None else found
    pieces = [(a[at : at + chunk(b)], b[at : at + chunk(b)]) for at in range(0, b.numel(), chunk(b))]
    total, count = 0.0, 0
    for _, part in pieces:
        part = part.double()
        part = part[part.isfinite()]
        total, count = total + float(part.square().sum()), count + part.numel()
    rms = math.sqrt(total / count) if count else 0.0
    return torch.cat([relative(x, y, rms) > limit for x, y in pieces])


def pattern(mask: torch.Tensor) -> str:
    """Describes the wrong elements by their indices along each dimension. Returns an empty string if they form no pattern."""
    if bool(mask.all()):
        return "every element"
    marks = mask.flatten().to(torch.uint8)  # never the positions of all wrong elements, which take eight times the space
    count, first = int(mask.sum()), int(marks.argmax())
    if mask.dim() > 1 and count > 1 and first + count == mask.numel():
        return f"the last {count:,} elements in order"
    said, box = [], 1
    for dimension, size in enumerate(mask.shape):
        others = [other for other in range(mask.dim()) if other != dimension]
        along = (mask.any(dim=others) if others else mask).nonzero().flatten().tolist()
        box *= len(along)
        if text := indices(along, size):
            said.append(f"dimension {dimension}: {text}")
    if not said:
        return ""
    return "; ".join(said) + (" (all elements there)" if box == count and mask.dim() > 1 else "")


def indices(found: list[int], size: int) -> str:
    """Describes ascending indices below `size`. Returns an empty string if they are all of them or form no pattern."""
    if len(found) == size:
        return ""
    first, last = found[0], found[-1]
    if len(found) <= FEW:
        return f"{', '.join(map(str, found))} of {size:,}"
    if last - first + 1 == len(found):
        return f"the last {len(found):,} of {size:,}" if last == size - 1 else f"{first:,} to {last:,} of {size:,}"
    for period in PERIODS:
        rest = sorted({index % period for index in found})
        together = rest[-1] - rest[0] + 1 == len(rest)
        covered = sum(len(range(residue, size, period)) for residue in rest)
        if size >= REPEATS * period and 2 * len(rest) <= period and len(found) >= DENSE * covered and (together or len(rest) <= FEW):
            span = f"{rest[0]} to {rest[-1]}" if together and len(rest) > 1 else ", ".join(map(str, rest))
            return f"{span} of every {period}"
    return f"{len(found):,} of {size:,}, between {first:,} and {last:,}"


def _shown(element: torch.Tensor) -> str:
    return f"{float(element):.9g}" if element.is_floating_point() else str(element.item())
