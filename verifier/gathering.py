"""Determines how many bytes of a tensor are read by operators that gather elements at given positions: the memory sectors that contain these
elements, which may be only a small part of the tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

SECTOR = 32  # bytes; the smallest unit that memory transfers
GATHERS = frozenset(["gather", "index", "index_select", "embedding", "take"])


def gathered_bytes(op: str, args: Sequence[Any], shape: Sequence[int], item: int, result: Sequence[int]) -> int | None:
    """Returns the number of bytes that operator `op` reads from its first tensor, which has the given `shape` and `item` bytes per element. `args`
    are as in a graph, and `result` is the shape of the result. Returns null if the operator does not gather."""
    kind = op.split(".")[1] if "." in op else op
    if kind not in GATHERS or len(args) < 2 or not shape:
        return None
    elements = math.prod(result)
    run = _run(kind, args, shape, result)
    return min(sectors(elements // max(run, 1), run * item), math.prod(shape) * item)


def sectors(runs: int, nbytes: int) -> int:
    """Returns the total bytes of the sectors that contain `runs` pieces of `nbytes` bytes each, which may be anywhere in memory."""
    return runs * math.ceil(nbytes / SECTOR) * SECTOR


def _run(kind: str, args: Sequence[Any], shape: Sequence[int], result: Sequence[int]) -> int:
    """Returns how many gathered elements are contiguous in memory."""
    if kind == "embedding":
        return shape[-1]
    if kind in ("gather", "index_select") and isinstance(args[1], int):
        last = args[1] % len(shape)
        if kind == "index_select":
            return math.prod(shape[last + 1 :])
        return result[-1] if result and last < len(shape) - 1 else 1
    if kind == "index" and isinstance(args[1], list):
        last = max((at for at, index in enumerate(args[1]) if index is not None), default=len(shape) - 1)
        return math.prod(shape[last + 1 :])
    return 1
