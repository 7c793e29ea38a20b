"""Determines which rows a pass of a loop over experts takes, by tracing the pass's mask back to the tensor that holds each row's expert."""

# sandboxed: reads graphs of the models that tasks define

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from verifier.graph import Node
from verifier.parties.capturing.loop_nodes import Unlike
from verifier.parties.capturing.row_wise import COPIES, CUTS, operator_name

TRUTH = (("ne", 0), ("gt", 0), ("ge", 1), ("eq", 1))  # comparisons that turn the numbers 0 and 1 into a mask
WHOLE_NUMBERS = ("int64", "int32")


@dataclass(frozen=True)
class Selection:
    """The rows that a pass takes. `source` is the value that holds the expert number of each row, `shape` its shape, and `first` the number of the
    first pass. The mask has the axes of `source` in the order `axes`; if `axes` is None, it has any axes that enumerate the same elements in the same
    order. `merged` means that a row is taken if any element along the last axis of `source` equals the number."""

    source: str
    shape: tuple[int, ...]
    first: int
    axes: tuple[int, ...] | None = None
    merged: bool = False

    @property
    def pairs(self) -> int:
        return math.prod(self.shape)

    def of_axis(self, mask: tuple[int, ...], axis: int) -> tuple[int, int]:
        """Returns (after, size) for the index along a mask axis: for pair p the index is p // after % size."""
        if self.axes is None:
            return math.prod(mask[axis + 1 :]) * (self.shape[-1] if self.merged else 1), mask[axis]
        own = self.axes[axis]
        return math.prod(self.shape[own + 1 :]), self.shape[own]


def read_selection(
    mask: str, number: Callable[[Node], int | None], node_of: Callable[[str], Node | None], shape_of: Callable[[str], Any]
) -> Selection:
    """Reads a selection. `number` returns the number of the first pass for operators that take the pass number as their last argument. `node_of`
    returns the node that computes a value, or None for an input. `shape_of` returns the shape of a value. Raises `Unlike`."""
    axes: list[int] | None = list(range(len(shape_of(mask))))
    chosen: tuple[int, int] | None = None  # the axis of the classes, and the number of the first pass
    merged, value = False, mask
    while (node := node_of(value)) is not None:
        name, args = operator_name(node), node.args
        below = args[0]["ref"] if args and isinstance(args[0], dict) and "ref" in args[0] else ""
        rank = len(shape_of(below)) if below else 0
        if chosen is None and name == "eq" and (first := number(node)) is not None:
            return _found(below, shape_of, first, axes, merged)
        if chosen is not None and node.op == "aten.eq.Tensor" and axes is not None:
            return _one_hot(node, node_of, shape_of, chosen, axes)
        if name in COPIES or len(args) > 1 and (name, args[1]) in TRUTH:
            pass
        elif name in CUTS and chosen is None and axes in (None, list(range(len(shape_of(value))))):
            axes = None
        elif name == "any" and not merged and len(args) > 1 and args[1] in (-1, rank - 1, [-1], [rank - 1]) and rank == len(shape_of(value)) + 1:
            if chosen is not None or axes not in (None, list(range(rank - 1))):
                raise Unlike("a mask is no comparison with the number of an expert")
            merged, axes = True, None
        elif name in ("permute", "transpose", "t") and axes is not None and not merged:
            order = _order(node, rank)
            axes = [order[axis] for axis in axes]
            chosen = chosen and (order[chosen[0]], chosen[1])
        elif name == "select" and chosen is None and axes is not None and not merged and (first := number(node)) is not None:
            along = args[1] % rank
            axes = [axis + (axis >= along) for axis in axes]
            chosen = along, first
        else:
            break
        value = below
    raise Unlike("a mask is no comparison with the number of an expert")


def _found(source: str, shape_of: Callable[[str], Any], first: int, axes: list[int] | None, merged: bool) -> Selection:
    shape = tuple(shape_of(source))
    same = axes in (None, list(range(len(shape))))
    return Selection(source, shape, first, None if same else tuple(axes or ()), merged)


def _one_hot(
    node: Node, node_of: Callable[[str], Node | None], shape_of: Callable[[str], Any], chosen: tuple[int, int], axes: list[int]
) -> Selection:
    """Reads `unsqueeze(source, -1) == arange(...)`, which has the classes along its last axis."""
    wide, counted = (node_of(argument["ref"]) if isinstance(argument, dict) else None for argument in node.args)
    rank = len(shape_of(node.name))
    if wide is None or counted is None or wide.op != "aten.unsqueeze.default" or wide.args[1] not in (-1, rank - 1) or chosen[0] != rank - 1:
        raise Unlike("a mask is no comparison with the number of an expert")
    if not counted.op.startswith("aten.arange") or len(counted.args) > 2 and counted.args[2] != 1:
        raise Unlike("a mask is no comparison with the number of an expert")
    begin = counted.args[0] if len(counted.args) > 1 else 0
    return _found(wide.args[0]["ref"], shape_of, begin + chosen[1], axes, merged=False)


def _order(node: Node, rank: int) -> list[int]:
    """Returns the argument axis that corresponds to each result axis."""
    order = list(range(rank))
    if operator_name(node) == "permute":
        return [axis % rank for axis in node.args[1]]
    if rank >= 2:
        a, b = (axis % rank for axis in node.args[1:3]) if operator_name(node) == "transpose" else (0, 1)
        order[a], order[b] = order[b], order[a]
    return order


def distinct(source: str, node_of: Callable[[str], Node | None], shape_of: Callable[[str], Any], experts: int) -> tuple[bool, bool]:
    """Returns whether each row contains an expert at most once along the last axis, and whether every number is in the range from 0 to `experts` - 1.
    Recognises indices from topk and argmax."""
    value = source
    while (node := node_of(value)) is not None:
        name = operator_name(node)
        if name in COPIES or name in CUTS and shape_of(node.name)[-1:] == shape_of(node.args[0]["ref"])[-1:]:
            value = node.args[0]["ref"]
            continue
        if node.op == "getitem" and node.args[1] == 1 and (maker := node_of(node.args[0]["ref"])) is not None and maker.op == "aten.topk.default":
            shape = shape_of(maker.args[0]["ref"])
            last = (maker.args[2] if len(maker.args) > 2 else -1) in (-1, len(shape) - 1)
            return last, last and shape[-1] == experts
        if name == "argmax" and len(node.args) > 1 and node.args[1] is not None:
            return False, shape_of(node.args[0]["ref"])[node.args[1]] == experts
        break
    return False, False
