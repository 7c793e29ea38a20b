"""Checks that NaN and infinity propagate. A few input elements become NaN, and every output that depends on them must then become NaN. In another
call, the same elements become infinite, and outputs that are infinite in PyTorch must not be finite.

An output depends on input elements if it changes when they become large. Products with zero, masked parts and skipped parts do not depend on them, so
a program may omit those. NaN may spread further than in PyTorch, for example, through the tiles of a fast convolution. A clamp or a maximum that
swallows NaN (`fmaxf(x, 0)`) is only reported; any other number in place of NaN is wrong. When numbers are sorted or ranked, NaN has no well-defined
position, so outputs that depend on the result are not judged.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle

import torch

from verifier.correctness.bounds import position, root_mean_square
from verifier.float8 import wide
from verifier.judge.session import ReferenceSession, Values
from verifier.layout import leaf_names

NAME = "not a number"
PLACES = 3
BOTH = (math.inf, -math.inf)
LARGE = 8.0  # multiple of the largest number in the task's own inputs
MOVES = 1e-3  # relative change of an output below which rounding may be the cause
AGREES = 1e-2
NOTE = "NaN in the inputs is lost in a clamp or a maximum (C's fmaxf and fminf, and comparisons, return the other operand); PyTorch propagates it"


@dataclass
class Asked:
    """Inputs that contain NaN or, with `infinite`, infinity, and the output elements that must be NaN, or must not be finite."""

    values: Values
    required: list[torch.Tensor | None]
    rng: int
    infinite: bool = False


def prepared(reference: ReferenceSession, first: Values, own: list[torch.Tensor], rng: int, draws: random.Random) -> Iterator[Asked]:
    """Yields the inputs of up to two calls, one at a time, because they may take up gigabytes. Skips calls that would affect no output. `own`
    contains eager's outputs for `first`. The state is unchanged."""
    own = [wide(output) for output in own]
    at = {index: _places(tensor, draws) for index, tensor in enumerate(first.tensors) if tensor.is_floating_point() and tensor.numel() > PLACES}
    if not at:
        return
    moved = _outputs(reference, _with(first, at, None), rng)

    def asked(numbers: tuple[float, ...], infinite: bool) -> Asked | None:
        values = _with(first, at, numbers)
        lost = _outputs(reference, values, rng)
        required = [_required(*leaf, torch.isinf if infinite else torch.isnan) for leaf in zip(own, moved, lost, strict=True)]
        return Asked(values, required, rng, infinite) if any(mask is not None for mask in required) else None

    if found := asked((torch.nan,), infinite=False):
        yield found
    found = None
    # In a sum over all elements, infinities of both signs yield NaN.
    if found := asked(BOTH, infinite=True) or asked((torch.inf,), infinite=True):
        yield found


def _outputs(reference: ReferenceSession, values: Values, rng: int) -> list[torch.Tensor]:
    outputs = reference.eager(values, rng).outputs.tensors
    reference.rollback()
    return [wide(output) for output in outputs]


def _places(tensor: torch.Tensor, draws: random.Random) -> list[tuple[int, ...]]:
    return [position(index, tuple(tensor.shape)) for index in draws.sample(range(tensor.numel()), PLACES)]


def _with(values: Values, at: dict[int, list[tuple[int, ...]]], numbers: tuple[float, ...] | None) -> Values:
    """Returns the inputs with `numbers` placed, in turn, at these positions. Null stands for a number larger than all others."""
    tensors = list(values.tensors)
    for index, places in at.items():
        tensors[index] = tensors[index].clone(memory_format=torch.preserve_format)
        given = numbers or (LARGE * float(wide(tensors[index]).abs().max()) + 1.0,)
        for place, number in zip(places, cycle(given), strict=False):
            tensors[index][place] = number
    return Values(values.tree, values.specs, tensors)


def _required(own: torch.Tensor, moved: torch.Tensor, lost: torch.Tensor, kind: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor | None:
    """Returns a mask of the elements that must become values of this kind. Returns null if there are none."""
    if not own.is_floating_point() or not own.numel() or not own.shape == moved.shape == lost.shape:
        return None
    apart = (moved.double() - own.double()).abs() > MOVES * (own.double().abs() + root_mean_square(own))
    mask = kind(lost) & apart & own.isfinite()
    return mask if bool(mask.any()) else None


def judged(asked: Asked, outputs: list[torch.Tensor], reference: ReferenceSession, tree: object) -> tuple[str, bool]:
    """Returns a description of how NaN or infinity is lost (empty if it is not), and whether a clamp has swallowed any NaN. The state is
    unchanged."""
    outputs = [wide(output) for output in outputs]
    kept = torch.isfinite if asked.infinite else torch.isnan
    gone = [None if mask is None else mask & (kept(value) ^ (not asked.infinite)) for mask, value in zip(asked.required, outputs, strict=True)]
    if not any(mask is not None and bool(mask.any()) for mask in gone):
        return "", False
    readings = []
    for how in ("low", "high") if not asked.infinite else ():
        run = reference.eager(asked.values, asked.rng, dropping=how)
        reference.rollback()
        readings.append([wide(output) for output in run.outputs.tensors])
        if run.orders and how == "low":
            unordered = reference.eager(asked.values, asked.rng, dropping="unordered").outputs.tensors
            reference.rollback()
            gone = [None if mask is None else mask & still.isnan() for mask, still in zip(gone, unordered, strict=True)]
    for index, (name, mask, value) in enumerate(zip(leaf_names(tree), gone, outputs, strict=True)):
        if mask is None:
            continue
        odd = mask.clone()
        for reading in readings:
            odd &= ~_agrees(value, reading[index])
        count = int(odd.sum())
        if count:
            at = list(position(int(odd.flatten().to(torch.uint8).argmax()), tuple(value.shape)))
            lost = "infinity" if asked.infinite else "NaN"
            said = f"{count:,} elements are ordinary numbers instead; first at {at}: {float(value[tuple(at)]):.9g}"
            return f"{name}: {lost} in the inputs is lost: {said}", not asked.infinite
    return "", not asked.infinite


def _agrees(value: torch.Tensor, reading: torch.Tensor) -> torch.Tensor:
    finite = reading[reading.isfinite()].double()
    size = float(finite.square().mean().sqrt()) if finite.numel() else 0.0
    return (value.double() - reading.double()).abs() <= AGREES * (reading.double().abs() + size) + 1e-30
