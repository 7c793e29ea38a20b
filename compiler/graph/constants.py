"""Handles operators that create a tensor from numbers alone. Kernels compute its elements instead of reading them."""

from __future__ import annotations

from typing import Any

from compiler.graph.values import plain
from verifier.graph import Node

FILLED = {"zeros": 0, "zeros_like": 0, "new_zeros": 0, "ones": 1, "ones_like": 1, "new_ones": 1}  # operator -> the value of all elements
GIVEN = {"scalar_tensor": 0, "full": 1, "full_like": 1, "new_full": 2}  # operator -> the position of the argument that holds the value
CONSTANTS = frozenset([*FILLED, *GIVEN, "arange"])


def filled_with(node: Node) -> Any:
    """Returns the value of all elements of a tensor that is filled with one number."""
    name = node.op.split(".")[1]
    return FILLED[name] if name in FILLED else plain(node.args[GIVEN[name]])


def progression(node: Node) -> tuple[Any, Any]:
    """Returns the start and the step of a range."""
    if node.op == "aten.arange.start_step":
        return plain(node.args[0]), plain(node.args[2]) if len(node.args) > 2 else 1
    return plain(node.args[0]) if node.op == "aten.arange.start" else 0, 1
