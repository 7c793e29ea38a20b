"""Checks that NaN propagates: a few elements of the inputs become NaN, and every output that depends on them must become NaN.

An output depends on them if it changes when they become large. Products with zero, masked parts and skipped parts do not depend on them, and a
program may leave those out. NaN may spread further than in PyTorch, as it does through the tiles of a fast convolution. A clamp or a maximum that
swallows NaN (`fmaxf(x, 0)`) is only noted; any other number in place of NaN is wrong.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch

from verifier.correctness.bounds import position, root_mean_square
from verifier.judge.session import ReferenceSession, Values
from verifier.layout import leaf_names

NAME = "not a number"
PLACES = 3
LARGE = 8.0  # times the largest of the task's own numbers
MOVES = 1e-3  # relative: a smaller change of an output may be rounding
AGREES = 1e-2
NOTE = "NaN in the inputs is lost in a clamp or a maximum (C's fmaxf and fminf, and comparisons, return the other operand); PyTorch propagates it"


@dataclass
class Asked:
    """Inputs that contain NaN, the elements of the outputs that must be NaN, and the task's outputs without NaN."""

    values: Values
    required: list[torch.Tensor | None]
    rng: int


def prepared(reference: ReferenceSession, first: Values, own: list[torch.Tensor], rng: int, draws: random.Random) -> Asked | None:
    """Prepares the inputs; null where no output would show NaN. `own`: eager's outputs for `first`. The state is unchanged."""
    at = {index: _places(tensor, draws) for index, tensor in enumerate(first.tensors) if tensor.is_floating_point() and tensor.numel() > PLACES}
    if not at:
        return None
    large = _with(first, at, None)
    moved = reference.eager(large, rng).outputs.tensors
    reference.rollback()
    values = _with(first, at, torch.nan)
    lost = reference.eager(values, rng).outputs.tensors
    reference.rollback()
    required = [_required(*leaf) for leaf in zip(own, moved, lost, strict=True)]
    return Asked(values, required, rng) if any(mask is not None for mask in required) else None


def _places(tensor: torch.Tensor, draws: random.Random) -> list[tuple[int, ...]]:
    return [position(index, tuple(tensor.shape)) for index in draws.sample(range(tensor.numel()), PLACES)]


def _with(values: Values, at: dict[int, list[tuple[int, ...]]], number: float | None) -> Values:
    """Returns the inputs with `number` in these places; null means a number larger than all others."""
    tensors = list(values.tensors)
    for index, places in at.items():
        tensors[index] = tensors[index].clone(memory_format=torch.preserve_format)
        most = float(tensors[index].abs().max()) if number is None else 0.0
        for place in places:
            tensors[index][place] = LARGE * most + 1.0 if number is None else number
    return Values(values.tree, values.specs, tensors)


def _required(own: torch.Tensor, moved: torch.Tensor, lost: torch.Tensor) -> torch.Tensor | None:
    if not own.is_floating_point() or not own.numel() or not own.shape == moved.shape == lost.shape:
        return None
    apart = (moved.double() - own.double()).abs() > MOVES * (own.double().abs() + root_mean_square(own))
    mask = lost.isnan() & apart & own.isfinite()
    return mask if bool(mask.any()) else None


def judged(asked: Asked, outputs: list[torch.Tensor], reference: ReferenceSession, tree: object) -> tuple[str, bool]:
    """Returns how NaN is lost, empty if it is not, and whether a clamp has swallowed some. The state is unchanged."""
    gone = [None if mask is None else mask & ~value.isnan() for mask, value in zip(asked.required, outputs, strict=True)]
    if not any(mask is not None and bool(mask.any()) for mask in gone):
        return "", False
    readings = []
    for how in ("low", "high"):
        run = reference.eager(asked.values, asked.rng, dropping=how)
        reference.rollback()
        if run.orders:
            return "", True  # there is no agreed place for NaN in an ordering
        readings.append(run.outputs.tensors)
    for index, (name, mask, value) in enumerate(zip(leaf_names(tree), gone, outputs, strict=True)):
        if mask is None:
            continue
        odd = mask.clone()
        for reading in readings:
            odd &= ~_agrees(value, reading[index])
        count = int(odd.sum())
        if count:
            at = list(position(int(odd.flatten().to(torch.uint8).argmax()), tuple(value.shape)))
            return (
                f"{name}: NaN in the inputs is lost: {count:,} elements are ordinary numbers instead; first at {at}: {float(value[tuple(at)]):.9g}",
                True,
            )
    return "", True


def _agrees(value: torch.Tensor, reading: torch.Tensor) -> torch.Tensor:
    finite = reading[reading.isfinite()].double()
    size = float(finite.square().mean().sqrt()) if finite.numel() else 0.0
    return (value.double() - reading.double()).abs() <= AGREES * (reading.double().abs() + size) + 1e-30
