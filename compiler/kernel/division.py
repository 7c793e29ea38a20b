"""Lowers floating-point and integer divisions and remainders."""

from __future__ import annotations

from typing import Any

from compiler.graph.ir import HALVES
from compiler.graph.network import plain
from compiler.graph.reductions import short
from compiler.kernel.builder import Builder, Refused, tensor_args
from compiler.kernel.lowering import argument, left, lowers, result
from compiler.kernel.pointwise import as_stored
from verifier.graph import Node

WHOLE = ("int64", "int32")


@lowers("aten.div")
def div(builder: Builder, node: Node) -> str:
    mode, out = argument(node, 2, "rounding_mode"), result(builder, node)
    if mode is not None and out in WHOLE and counts(node.args[1]):
        return whole_division(builder, node, out)[0 if mode == "trunc" else 1]
    if out != "float32":
        raise Refused("integer division")
    x, y = builder.operands(node, out, *node.args[:2])
    if mode is None:
        return builder.op("div", x, y)
    stored = builder.network.spec(node.name).dtype
    return whole_quotient(builder, mode, x, y, stored if stored in HALVES and len(tensor_args(node)) == 2 else "")


@lowers("aten.fmod", "aten.remainder")
def remainder(builder: Builder, node: Node) -> str:
    """Emits the remainder of a division that truncates towards zero (fmod) or rounds down (remainder)."""
    name, out, args = short(node), result(builder, node), node.args
    if out in WHOLE and len(args) > 1 and counts(args[1]):
        return whole_division(builder, node, out)[2 if name == "fmod" else 3]
    if out != "float32" or not isinstance(args[0], dict):
        raise left(node)
    x, y = builder.operands(node, out, args[0], as_stored(builder, args[0], args[1]))
    rest = builder.op("fmod", x, y, hint="rest")
    if name == "fmod":
        return rest
    return builder.op("where", beyond_zero(builder, rest, y), builder.op("add", rest, y), rest, hint="remainder")


def beyond_zero(builder: Builder, rest: str, y: str) -> str:
    """Emits a test for whether the remainder of a division that truncates towards zero is nonzero and has the opposite sign of the divisor."""
    zero = builder.const(0)
    signs = [builder.op("lt", one, zero, dtype="bool") for one in (y, rest)]
    return builder.op("and", builder.op("ne", rest, zero, dtype="bool"), builder.op("xor", *signs, dtype="bool"), dtype="bool", hint="beyond")


def counts(number: Any) -> bool:
    """Returns whether an integer division by this value needs no test for zero."""
    return type(plain(number)) is int and plain(number) > 0


def whole_division(builder: Builder, node: Node, out: str) -> tuple[str, str, str, str]:
    """Divides integers by a positive integer. Returns the quotient truncated towards zero, the quotient rounded down, and the remainders of both."""
    x, y = builder.operands(node, out, node.args[0], node.args[1])
    cut = builder.op("div", x, y, dtype=out, hint="cut")
    left = builder.op("sub", x, builder.op("mul", cut, y, dtype=out), dtype=out, hint="left")
    under = builder.op("lt", left, builder.const(0, out), dtype="bool")
    below = builder.op("where", under, builder.op("sub", cut, builder.const(1, out), dtype=out), cut, dtype=out, hint="below")
    return cut, below, left, builder.op("where", under, builder.op("add", left, y, dtype=out), left, dtype=out, hint="rest")


def whole_quotient(builder: Builder, mode: str, x: str, y: str, stored: str) -> str:
    """Computes a quotient truncated or rounded down to an integer. Rounding down uses an exact remainder, since the quotient itself may already have
    been rounded up to an integer (1 / 0.1). `stored` is the 16-bit type to which PyTorch rounds every step if both operands are tensors."""

    def step(kind: str, *args: str) -> str:
        found = builder.op(kind, *args)
        return builder.op("round", found, hint="rounded", attr=stored) if stored else found

    if mode == "trunc":
        return builder.op("trunc", step("div", x, y))
    zero, one = builder.const(0), builder.const(1)
    rest = step("fmod", x, y)
    near = step("div", step("sub", x, rest), y)
    near = builder.op("where", beyond_zero(builder, rest, y), step("sub", near, one), near, hint="near")
    below = builder.op("floor", near)
    far = builder.op("gt", step("sub", near, below), builder.const(0.5), dtype="bool")
    whole = builder.op("where", far, builder.op("add", below, one), below, hint="whole")
    return builder.op("where", builder.op("eq", y, zero, dtype="bool"), builder.op("div", x, y), whole, hint="floored")
