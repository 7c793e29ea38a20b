"""Rounding to 16-bit types, and the operations whose results need no rounding."""

from __future__ import annotations

import math
import struct

from compiler.graph.ir import Kernel

SELECTS = frozenset(["neg", "abs", "max", "min", "where", "floor", "ceil", "trunc", "round", "spread", "sign"])  # operations that never round


def is_held(kernel: Kernel, name: str, dtype: str) -> bool:
    """Returns whether a 16-bit type can hold the result of operation `name` without rounding."""
    op = kernel.ops[name]
    if op.kind in ("load", "gather"):
        return kernel.arguments[op.access.argument].dtype == dtype
    if op.kind == "const":
        return op.dtype == "float32" and rounded(op.attr, dtype) == op.attr
    if op.kind == "round" and op.attr:
        return bool(op.attr == dtype)
    if op.kind == "cast":
        return kernel.ops[op.args[0]].dtype == "bool"
    chosen = op.args[1:] if op.kind == "where" else op.args
    return (op.kind in SELECTS or op.attr in ("max", "amax", "amin")) and all(is_held(kernel, arg, dtype) for arg in chosen)


def rounded(value: float, dtype: str) -> float:
    """Returns `value` rounded to a 16-bit type (to nearest, ties to even)."""
    try:
        if dtype == "float16":
            half: float = struct.unpack("e", struct.pack("e", value))[0]
            return half
        bits = struct.unpack("I", struct.pack("f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    bits += 0x7FFF + (bits >> 16 & 1) if math.isfinite(value) else 0
    found: float = struct.unpack("f", struct.pack("I", bits & 0xFFFF0000))[0]
    return found
