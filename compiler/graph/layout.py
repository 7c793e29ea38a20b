"""The representation of strided views as data: the positions of a view's elements in the underlying tensor."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

VIEWS = frozenset(
    [
        "aten.view.default",
        "aten._unsafe_view.default",
        "aten.reshape.default",
        "aten.permute.default",
        "aten.transpose.int",
        "aten.t.default",
        "aten.unsqueeze.default",
        "aten.squeeze.dim",
        "aten.squeeze.dims",
        "aten.squeeze.default",
        "aten.expand.default",
        "aten.slice.Tensor",
        "aten.select.int",
        "aten.alias.default",
        "aten.detach.default",
        "aten.flatten.using_ints",
        "aten.unflatten.int",
        "aten.lift_fresh_copy.default",
    ]
)
SPLITS = frozenset(["aten.split_with_sizes.default", "aten.split.Tensor", "aten.chunk.default", "aten.unbind.int"])


@dataclass(frozen=True)
class Layout:
    """Element (i0, i1, ...) is at `base[offset + sum(i * stride)]`; `base` is the name of a contiguous tensor."""

    base: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @property
    def contiguous(self) -> bool:
        return all(size == 1 or stride == step for size, stride, step in zip(self.shape, self.strides, contiguous_strides(self.shape), strict=True))


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def dense(base: str, shape: tuple[int, ...]) -> Layout:
    return Layout(base, tuple(shape), contiguous_strides(tuple(shape)))


def view(op: str, source: Layout, args: list[Any], shape: tuple[int, ...]) -> Layout | None:
    """Returns the layout of `op(source, *args)`, which has the shape `shape`, or None if the result cannot be a view of the same elements."""
    name = op.split(".")[1]
    rank = len(source.shape)
    if name in ("alias", "detach", "lift_fresh_copy"):
        return source
    if name == "permute":
        order = [axis % rank for axis in args[0]]
        return Layout(source.base, shape, tuple(source.strides[axis] for axis in order), source.offset)
    if name in ("transpose", "t"):
        order = list(range(rank))
        if rank >= 2:
            a, b = (args[0] % rank, args[1] % rank) if name == "transpose" else (0, 1)
            order[a], order[b] = order[b], order[a]
        return Layout(source.base, shape, tuple(source.strides[axis] for axis in order), source.offset)
    if name == "unsqueeze":
        axis = args[0] % (rank + 1)
        return Layout(source.base, shape, source.strides[:axis] + (0,) + source.strides[axis:], source.offset)
    if name == "squeeze":
        named = range(rank) if not args else [args[0]] if isinstance(args[0], int) else args[0]
        dropped = {axis % rank for axis in named if source.shape[axis % rank] == 1}
        return Layout(source.base, shape, tuple(s for axis, s in enumerate(source.strides) if axis not in dropped), source.offset)
    if name == "expand":
        lead = len(shape) - rank
        strides = tuple(
            0 if axis < lead or (source.shape[axis - lead] == 1 and size != 1) else source.strides[axis - lead] for axis, size in enumerate(shape)
        )
        return Layout(source.base, shape, strides, source.offset)
    if name == "slice":
        axis = (args[0] if args else 0) % rank
        start = args[1] if len(args) > 1 and args[1] is not None else 0
        step = args[3] if len(args) > 3 else 1
        start = min(max(start + source.shape[axis] if start < 0 else start, 0), source.shape[axis])
        strides = tuple(s * step if at == axis else s for at, s in enumerate(source.strides))
        return Layout(source.base, shape, strides, source.offset + start * source.strides[axis])
    if name == "select":
        axis = args[0] % rank
        index = args[1] % source.shape[axis]
        return Layout(source.base, shape, source.strides[:axis] + source.strides[axis + 1 :], source.offset + index * source.strides[axis])
    if name in ("view", "_unsafe_view", "reshape", "flatten", "unflatten"):
        reshaped = reshape_strides(source.shape, source.strides, shape)
        return None if reshaped is None else Layout(source.base, shape, reshaped, source.offset)
    return None


def split(op: str, source: Layout, args: list[Any], item: int, shape: tuple[int, ...]) -> Layout | None:
    """Returns the layout of result number `item` of a split, chunk or unbind; `shape` is the shape of this result."""
    name, rank = op.split(".")[1], len(source.shape)
    if name == "unbind":
        return view("aten.select.int", source, [args[0] if args else 0, item], shape)
    axis = (args[1] if len(args) > 1 else 0) % rank
    if name == "split_with_sizes":
        start = sum(args[0][:item])
    elif name == "split":
        start = args[0] * item
    else:
        start = -(-source.shape[axis] // args[0]) * item
    return view("aten.slice.Tensor", source, [axis, start], shape)


def reshape_strides(shape: tuple[int, ...], strides: tuple[int, ...], target: tuple[int, ...]) -> tuple[int, ...] | None:
    """Returns the strides of a reshape that needs no copy, or None if it needs one. Source axes that are contiguous with each other form runs, which
    are then split into the new axes."""
    if math.prod(target) == 0 or math.prod(shape) == 0:
        return contiguous_strides(target)
    runs: list[list[int]] = []  # [number of elements, stride of the innermost axis]
    for size, stride in zip(shape, strides, strict=True):
        if size == 1:
            continue
        if runs and runs[-1][1] == stride * size:
            runs[-1] = [runs[-1][0] * size, stride]
        else:
            runs.append([size, stride])
    result: list[int] = []
    at, room = 0, runs[0][0] if runs else 1  # the current run, and the number of its elements not yet assigned to a target axis
    for size in target:
        if size == 1:
            result.append(0)
            continue
        while room == 1 and at + 1 < len(runs):
            at += 1
            room = runs[at][0]
        if room % size:
            return None
        room //= size
        result.append(room * runs[at][1])
    return tuple(result) if room == 1 and (not runs or at == len(runs) - 1) else None
