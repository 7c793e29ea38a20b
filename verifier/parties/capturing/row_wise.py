"""Determines whether an operator processes each row independently, given the axes of the rows in its argument and its result."""

from __future__ import annotations

import math
from typing import Any

import torch

from verifier.graph import Node
from verifier.task import TensorSpec

COPIES = frozenset({"_to_copy", "clone", "alias", "detach", "lift_fresh_copy", "contiguous", "hardswish", "hardsigmoid", "hardtanh", "log_sigmoid"})
CUTS = frozenset({"view", "_unsafe_view", "reshape"})
MOVES = frozenset({"unsqueeze", "squeeze", "permute", "transpose", "t", "expand"})
ALONG = frozenset({"select", "slice", "split", "split_with_sizes", "chunk", "unbind", "softmax", "log_softmax", "_softmax", "_log_softmax", "cumsum",
                   "sum", "mean", "amax", "amin", "var", "std", "logsumexp", "flip"})  # fmt: skip
SIZES_FIRST = frozenset({"split", "split_with_sizes", "chunk"})  # their third argument is the axis
NORMS = frozenset({"layer_norm", "rms_norm"})


def operator_name(node: Node) -> str:
    return node.op.split(".")[1] if "." in node.op else node.op


def is_pointwise(node: Node) -> bool:
    return node.op.startswith("aten.") and (operator_name(node) in COPIES or torch.Tag.pointwise in _tags(node) and not is_random(node))


def is_random(node: Node) -> bool:
    return torch.Tag.nondeterministic_seeded in _tags(node) or operator_name(node) == "dropout"


def _tags(node: Node) -> list[Any]:
    space, _, rest = node.op.partition(".")
    name, _, overload = rest.partition(".")
    found = getattr(getattr(torch.ops.aten, name, None), overload or "default", None) if space == "aten" else None
    return found.tags if found is not None else []


def keeps_rows(node: Node, source: TensorSpec, axis: int, result: TensorSpec, row_axis: int) -> bool:
    """Returns whether an operator processes each row independently. Its only argument with rows has the spec `source` and the rows along `axis`. Does
    not cover pointwise operators and products."""
    name, rank = operator_name(node), len(source.shape)
    if name in CUTS:
        return math.prod(source.shape[:axis]) == math.prod(result.shape[:row_axis])
    if name in MOVES:
        return True
    if name in NORMS:
        return axis < rank - len(node.args[1])
    if name not in ALONG:
        return False
    return bool(dims := _axes(node, name)) and all(-rank <= dim < rank and dim % rank != axis for dim in dims)


def _axes(node: Node, name: str) -> list[int]:
    """Returns the axes along which the operator combines or distinguishes elements. An empty result means all axes."""
    at = 2 if name in SIZES_FIRST else 1
    found: Any = node.args[at] if len(node.args) > at else node.kwargs.get("dim", 0 if name in (*SIZES_FIRST, "unbind", "slice") else None)
    return [found] if type(found) is int else list(found or [])
