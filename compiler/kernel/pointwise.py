"""Lowers elementwise operators to scalar operations, following PyTorch's type promotion."""

from __future__ import annotations

from typing import Any

from compiler.graph.ir import HALVES
from compiler.graph.network import plain
from compiler.graph.reductions import short
from compiler.kernel.builder import Builder, Refused
from compiler.kernel.functions import OF_ONE
from compiler.kernel.lowering import argument, left, lowers, result
from compiler.kernel.rounding import rounded
from verifier.graph import Node

MOST_DECIMALS = 10  # powers of ten up to this exponent are exact in float32

# -- functions of one value ---------------------------------------------------------------------------------------------------


@lowers(*(f"aten.{name}" for name in OF_ONE), "aten.rsqrt", "aten.reciprocal")
def function(builder: Builder, node: Node) -> str:
    return builder.op(short(node), builder.operands(node, "float32", node.args[0])[0])


@lowers("aten.floor", "aten.ceil", "aten.round", "aten.trunc")
def rounding(builder: Builder, node: Node) -> str:
    out, decimals = result(builder, node), argument(node, 1, "decimals", 0)
    if out != "float32":
        return builder.operands(node, out, node.args[0])[0]
    (x,) = builder.operands(node, out, node.args[0])
    if not decimals:
        return builder.op(short(node), x)
    if builder.network.spec(node.name).dtype in HALVES or abs(decimals) > MOST_DECIMALS:
        raise Refused(f"a variant of {short(node)} is left to PyTorch")
    there, back = ("mul", "div") if decimals > 0 else ("div", "mul")
    step = builder.const(10.0 ** abs(decimals))
    return builder.op(back, builder.op("round", builder.op(there, x, step)), step)


@lowers("aten.atanh")
def atanh(builder: Builder, node: Node) -> str:
    """Computes log1p(2 |x| / (1 - |x|)) / 2 with the sign of x, like the CUDA library. The C library's version is not vectorised."""
    (x,) = builder.operands(node, "float32", node.args[0])
    size, op = builder.op("abs", x), builder.op
    twice = op("log1p", op("div", op("add", size, size), op("sub", builder.const(1), size)))
    return op("copysign", op("mul", builder.const(0.5), twice), x, hint="atanh")


@lowers("aten.neg", "aten.abs", "aten.sign")
def of_same_type(builder: Builder, node: Node) -> str:
    out = result(builder, node)
    return builder.op(short(node), *builder.operands(node, out, node.args[0]), dtype=out)


@lowers("aten.relu")
def relu(builder: Builder, node: Node) -> str:
    out = result(builder, node)
    (x,) = builder.operands(node, out, node.args[0])
    return builder.op("max", x, builder.const(0, out), dtype=out, hint="relu")


@lowers("aten.square")
def square(builder: Builder, node: Node) -> str:
    out = result(builder, node)
    (x,) = builder.operands(node, out, node.args[0])
    return builder.op("mul", x, x, dtype=out)


@lowers("aten.isnan", "aten.isinf")
def is_special(builder: Builder, node: Node) -> str:
    return builder.op(short(node), builder.operands(node, "float32", node.args[0])[0], dtype="bool")


@lowers("aten.signbit")
def signbit(builder: Builder, node: Node) -> str:
    """Tests the sign bit, including that of -0.0 and NaN."""
    (x,) = builder.operands(node, None, node.args[0])
    dtype = builder.kernel.ops[x].dtype
    signed = builder.op("copysign", builder.const(1), x) if dtype == "float32" else builder.cast(x, "int64")
    return builder.op("lt", signed, builder.const(0, builder.kernel.ops[signed].dtype), dtype="bool")


# -- copies and conversions ---------------------------------------------------------------------------------------------------


@lowers("aten.clone", "aten.contiguous", "aten.alias_copy")
def copy(builder: Builder, node: Node) -> str:
    return builder.operands(node, result(builder, node), node.args[0])[0]


@lowers("aten._to_copy", "aten.to")
def cast(builder: Builder, node: Node) -> str:
    stored = builder.network.spec(node.name).dtype
    found = convert(builder, builder.operands(node, None, node.args[0])[0], result(builder, node))
    narrows = stored in HALVES and builder.network.spec(node.args[0]["ref"]).dtype != stored
    return builder.op("round", found, hint="rounded", attr=stored) if narrows else found


def convert(builder: Builder, x: str, dtype: str) -> str:
    if dtype == "bool" and builder.kernel.ops[x].dtype != "bool":
        return builder.op("ne", x, builder.const(0, builder.kernel.ops[x].dtype), dtype="bool")
    return builder.cast(x, dtype)


def as_stored(builder: Builder, beside: Any, number: Any) -> Any:
    """Converts a number that is compared with a tensor, or that is an operand of a remainder with a tensor. PyTorch first converts such a number to
    the tensor's type."""
    value = plain(number)
    if isinstance(value, (dict, bool)) or builder.network.spec(beside["ref"]).dtype not in HALVES:
        return number
    return rounded(float(value), builder.network.spec(beside["ref"]).dtype)


# -- arithmetic ---------------------------------------------------------------------------------------------------------------

OF_BOOLEANS = {"add": "or", "mul": "and", "maximum": "or", "minimum": "and"}


@lowers("aten.add", "aten.sub", "aten.rsub", "aten.mul", "aten.maximum", "aten.minimum")
def arithmetic(builder: Builder, node: Node) -> str:
    name, out, alpha = short(node), result(builder, node), argument(node, 2, "alpha", 1)
    x, y = builder.operands(node, out, *node.args[:2])
    if name == "rsub":
        name, x, y = "sub", y, x
    if alpha != 1:
        y = builder.op("mul", y, builder.const(alpha, out), dtype=out)
    if out == "bool":
        if name not in OF_BOOLEANS:
            raise Refused("arithmetic on booleans")
        return builder.op(OF_BOOLEANS[name], x, y, dtype="bool")
    return builder.op({"maximum": "max", "minimum": "min"}.get(name, name), x, y, dtype=out)


@lowers("aten.copysign", only=["float32"])
def copysign(builder: Builder, node: Node) -> str:
    return builder.op("copysign", *builder.operands(node, "float32", *node.args[:2]))


@lowers("aten.fmax", "aten.fmin", only=["float32"])
def ignoring_nan(builder: Builder, node: Node) -> str:
    """Chooses the larger or smaller value. The result is NaN only if both are NaN."""
    x, y = builder.operands(node, "float32", *node.args[:2])
    chosen = builder.op(short(node).removeprefix("f"), x, y)
    chosen = builder.op("where", builder.op("isnan", y, dtype="bool"), x, chosen)
    return builder.op("where", builder.op("isnan", x, dtype="bool"), y, chosen, hint=short(node))


@lowers("aten.logaddexp", only=["float32"])
def logaddexp(builder: Builder, node: Node) -> str:
    """Computes log(exp(x) + exp(y)) without overflow. If both operands are the same infinity, the result is that infinity, because their difference
    would be NaN."""
    (x, y), op = builder.operands(node, "float32", *node.args[:2]), builder.op
    near = op("add", op("max", x, y), op("log1p", op("exp", op("neg", op("abs", op("sub", x, y))))))
    same = op("and", op("isinf", x, dtype="bool"), op("eq", x, y, dtype="bool"), dtype="bool")
    return op("where", same, x, near, hint="logaddexp")


@lowers("aten.pow")
def power(builder: Builder, node: Node) -> str:
    out, base, exponent = result(builder, node), plain(node.args[0]), plain(node.args[1])
    if out in ("int32", "int64") and type(exponent) is int and exponent in (2, 3, 4):
        return small_power(builder, builder.operands(node, out, base)[0], exponent, out)
    if out != "float32":
        raise Refused("powers of integers are left to PyTorch")
    if not isinstance(base, dict):
        return builder.op("pow", *builder.operands(node, out, as_stored(builder, exponent, base), exponent))
    (x,) = builder.operands(node, out, base)
    if isinstance(exponent, dict):
        return builder.op("pow", x, builder.operands(node, out, exponent)[0])
    if exponent in (2, 3, 4):
        return small_power(builder, x, exponent, out)
    if exponent == 1:
        return x
    named = {0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}
    if exponent in named:
        return builder.op(named[exponent], x)
    return builder.op("pow", x, builder.const(exponent))


def small_power(builder: Builder, x: str, exponent: int, out: str) -> str:
    """Computes a power with exponent 2, 3 or 4 by multiplication."""
    squared = builder.op("mul", x, x, dtype=out)
    return squared if exponent == 2 else builder.op("mul", squared, x if exponent == 3 else squared, dtype=out)


@lowers("aten.addcmul", "aten.addcdiv", only=["float32"])
def add_scaled(builder: Builder, node: Node) -> str:
    x, a, b = builder.operands(node, "float32", *node.args[:3])
    y = builder.op("mul" if short(node) == "addcmul" else "div", a, b)
    return builder.op("add", x, builder.op("mul", y, builder.const(plain(node.kwargs.get("value", 1)))))


@lowers("aten.lerp", only=["float32"])
def lerp(builder: Builder, node: Node) -> str:
    a, b, w = builder.operands(node, "float32", *node.args[:3])
    return builder.op("add", a, builder.op("mul", w, builder.op("sub", b, a)))


# -- comparisons and bits -----------------------------------------------------------------------------------------------------


@lowers("aten.eq", "aten.ne", "aten.lt", "aten.le", "aten.gt", "aten.ge")
def comparison(builder: Builder, node: Node) -> str:
    x, y = builder.operands(node, None, node.args[0], as_stored(builder, node.args[0], node.args[1]))
    common = "float32" if "float32" in (builder.kernel.ops[x].dtype, builder.kernel.ops[y].dtype) else "int64"
    return builder.op(short(node), builder.cast(x, common), builder.cast(y, common), dtype="bool")


@lowers("aten.logical_and", "aten.logical_or", "aten.logical_xor")
def logical(builder: Builder, node: Node) -> str:
    x, y = (convert(builder, v, "bool") for v in builder.operands(node, None, *node.args[:2]))
    return builder.op(short(node).removeprefix("logical_"), x, y, dtype="bool")


@lowers("aten.bitwise_and", "aten.bitwise_or", "aten.bitwise_xor")
def bitwise(builder: Builder, node: Node) -> str:
    out = result(builder, node)
    return builder.op(short(node).removeprefix("bitwise_"), *builder.operands(node, out, *node.args[:2]), dtype=out)


@lowers("aten.__rshift__", "aten.bitwise_right_shift", "aten.__lshift__", "aten.bitwise_left_shift")
def bit_shift(builder: Builder, node: Node) -> str:
    out = result(builder, node)
    if out not in ("int32", "int64"):
        raise Refused(f"a shift of {out} is left to PyTorch")
    kind = "rshift" if short(node) in ("__rshift__", "bitwise_right_shift") else "lshift"
    return builder.op(kind, *builder.operands(node, out, *node.args[:2]), dtype=out)


@lowers("aten.logical_not", "aten.bitwise_not")
def negation(builder: Builder, node: Node) -> str:
    out = result(builder, node)
    (x,) = builder.operands(node, None, node.args[0])
    if out == "bool":
        return builder.op("not", convert(builder, x, "bool"), dtype="bool")
    return builder.op("invert", x, dtype=out)


# -- choices ------------------------------------------------------------------------------------------------------------------


@lowers("aten.where", "aten.masked_fill")
def choice(builder: Builder, node: Node) -> str:
    mask, yes, no = node.args if short(node) == "where" else (node.args[1], node.args[2], node.args[0])
    out = result(builder, node)
    (chosen,) = builder.operands(node, "bool", mask)
    a, b = builder.operands(node, out, yes, no)
    return builder.op("where", chosen, a, b, dtype=out)


@lowers("aten.clamp")
def clamp(builder: Builder, node: Node) -> str:
    return bounded(builder, node, argument(node, 1, "min"), argument(node, 2, "max"))


@lowers("aten.clamp_min")
def clamp_min(builder: Builder, node: Node) -> str:
    return bounded(builder, node, argument(node, 1, "min"), None)


@lowers("aten.clamp_max")
def clamp_max(builder: Builder, node: Node) -> str:
    return bounded(builder, node, None, argument(node, 1, "max"))


def bounded(builder: Builder, node: Node, low: Any, high: Any) -> str:
    out = result(builder, node)
    (x,) = builder.operands(node, out, node.args[0])
    for bound, kind in ((low, "max"), (high, "min")):
        if bound is not None:
            x = builder.op(kind, x, builder.operands(node, out, bound)[0], dtype=out)
    return x


@lowers("aten.triu", "aten.tril")
def triangle(builder: Builder, node: Node) -> str:
    """Sets elements below (triu) or above (tril) a diagonal to zero."""
    out = result(builder, node)
    (x,) = builder.operands(node, out, node.args[0])
    row, column = builder.maps[node.name][-2:]
    if len(row) != 1 or len(column) != 1:
        raise Refused("a triangle of a single row or column")
    diagonal = builder.const(argument(node, 1, "diagonal", 0), "int64")
    at, down = (builder.op("coord", dtype="int64", hint=hint, attr=axis[0]) for hint, axis in (("column", column), ("line", row)))
    away = builder.op("sub", at, down, dtype="int64")
    kept = builder.op("ge" if short(node) == "triu" else "le", away, diagonal, dtype="bool", hint="kept")
    return builder.op("where", kept, x, builder.const(0, out), dtype=out)


# -- batch norm ---------------------------------------------------------------------------------------------------------------


@lowers("aten._native_batch_norm_legit_no_training", "aten._native_batch_norm_legit_functional")
def frozen_batch_norm(builder: Builder, node: Node) -> str:
    """Lowers a batch norm with running statistics to one multiply-add per channel."""
    args = [plain(a) for a in node.args]
    if len(args) == 8 and args[5] is True:
        raise Refused("batch norm in train mode is a reduction")
    eps = args[7] if len(args) == 8 else args[6]
    x, (weight, bias, mean, var) = builder.operands(node, "float32", args[0])[0], [channel(builder, node, a) for a in args[1:5]]
    if mean is None or var is None:
        raise Refused("batch norm without running statistics")
    scale = builder.op("rsqrt", builder.op("add", var, builder.const(eps)))
    y = builder.op("mul", builder.op("sub", x, mean), scale)
    y = builder.op("mul", y, weight) if weight else y
    return builder.op("add", y, bias) if bias else y


@lowers("aten._native_batch_norm_legit")
def batch_norm(builder: Builder, node: Node) -> str:
    raise left(node)  # in train mode it is a reduction (rowwise.py)


def channel(builder: Builder, node: Node, argument: dict[str, Any] | None) -> str | None:
    """Returns the operation for a vector over axis 1 of `node`, or None if there is no such vector."""
    return None if argument is None else builder.cast(builder.value(argument["ref"], (builder.maps[node.name][1],)), "float32")
