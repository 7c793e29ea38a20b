"""Element-by-element operators as scalar operations. Each entry gives the operations of one operator, with PyTorch's type promotion."""

from __future__ import annotations

import math
from typing import Any

from compiler.graph.ir import HALVES, in_registers
from compiler.graph.network import plain
from compiler.graph.reductions import short
from compiler.kernel import indexing
from compiler.kernel.builder import SUPPORTED, Builder, Refused, tensor_args
from verifier.graph import Node

UNARY = {
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "tanh", "sigmoid", "erf", "erfc", "sin", "cos", "tan",
    "floor", "ceil", "round", "trunc", "reciprocal", "sinh", "cosh", "asin", "acos", "atan",
}  # fmt: skip
SAME = {"neg", "abs", "relu", "sign", "square", "clone", "contiguous", "alias_copy"}
COMPARE = {"eq", "ne", "lt", "le", "gt", "ge"}
BITWISE = {"bitwise_and", "bitwise_or", "bitwise_xor", "logical_and", "logical_or", "logical_xor"}
SHIFTS = {"__rshift__": "rshift", "bitwise_right_shift": "rshift", "__lshift__": "lshift", "bitwise_left_shift": "lshift"}
ARITHMETIC = {"add", "sub", "rsub", "mul", "maximum", "minimum"}
ACTIVATIONS = {"gelu", "silu", "softplus", "mish", "hardswish", "hardsigmoid", "hardtanh", "leaky_relu", "elu", "relu6", "log_sigmoid"}
OTHER = {
    "div", "pow", "where", "clamp", "clamp_min", "clamp_max", "_to_copy", "to", "bitwise_not", "logical_not", "masked_fill", "addcmul",
    "addcdiv", "lerp", "isnan", "isinf", "_native_batch_norm_legit_no_training", "_native_batch_norm_legit_functional",
    "_native_batch_norm_legit", "triu", "tril",
}  # fmt: skip
NAMES = UNARY | SAME | COMPARE | BITWISE | SHIFTS.keys() | ARITHMETIC | ACTIVATIONS | OTHER | indexing.NAMES


def emit(builder: Builder, node: Node) -> str:
    """The operation whose value is `node`'s; raises `Refused` for a form that is not covered."""
    name = short(node)
    stored = builder.network.spec(node.name).dtype
    out = in_registers(stored)
    if name in ("_native_batch_norm_legit_no_training", "_native_batch_norm_legit_functional"):
        return frozen_batch_norm(builder, node)
    if name in indexing.NAMES:
        return indexing.emit(builder, node)
    for source in tensor_args(node):
        if builder.network.spec(source).dtype not in SUPPORTED:
            raise Refused(f"{builder.network.spec(source).dtype} is left to PyTorch")
    if stored not in SUPPORTED:
        raise Refused(f"{stored} is left to PyTorch")
    args = list(node.args)
    if name in UNARY:
        if node.kwargs or (name == "round" and len(args) > 1):
            raise Refused(f"a variant of {name} is left to PyTorch")
        if name in ("floor", "ceil", "round", "trunc") and out != "float32":
            return builder.operands(node, out, args[0])[0]
        return builder.op(name, builder.operands(node, "float32", args[0])[0])
    if name in ("clone", "contiguous", "alias_copy"):
        return builder.operands(node, out, args[0])[0]
    if name in ("_to_copy", "to"):
        found = convert(builder, builder.operands(node, None, args[0])[0], out)
        narrows = stored in HALVES and builder.network.spec(args[0]["ref"]).dtype != stored
        return builder.op("round", found, hint="rounded", attr=stored) if narrows else found
    if name in SAME:
        (x,) = builder.operands(node, out, args[0])
        if name == "square":
            return builder.op("mul", x, x, dtype=out)
        return builder.op("max" if name == "relu" else name, *([x, builder.const(0, out)] if name == "relu" else [x]), dtype=out, hint=name)
    if name in ARITHMETIC:
        x, y = builder.operands(node, out, args[0], args[1])
        alpha = plain(node.kwargs.get("alpha", args[2] if len(args) > 2 else 1))
        if name == "rsub":
            x, y = y, x
            if alpha != 1:
                y = builder.op("mul", y, builder.const(alpha, out), dtype=out)
            return builder.op("sub", x, y, dtype=out)
        if alpha != 1:
            y = builder.op("mul", y, builder.const(alpha, out), dtype=out)
        if out == "bool":
            kind = {"add": "or", "mul": "and", "maximum": "or", "minimum": "and"}.get(name)
            if kind is None:
                raise Refused("arithmetic on booleans")
            return builder.op(kind, x, y, dtype="bool")
        return builder.op({"maximum": "max", "minimum": "min"}.get(name, name), x, y, dtype=out)
    if name in COMPARE:
        x, y = builder.operands(node, None, args[0], args[1])
        common = "float32" if "float32" in (builder.kernel.ops[x].dtype, builder.kernel.ops[y].dtype) else "int64"
        return builder.op(name, builder.cast(x, common), builder.cast(y, common), dtype="bool")
    if name in BITWISE:
        kind = name.split("_")[1]
        if name.startswith("logical"):
            x, y = (convert(builder, v, "bool") for v in builder.operands(node, None, args[0], args[1]))
        else:
            x, y = builder.operands(node, out, args[0], args[1])
        return builder.op(kind, x, y, dtype=out)
    if name in SHIFTS:
        if out not in ("int32", "int64"):
            raise Refused(f"a shift of {out} is left to PyTorch")
        x, by = builder.operands(node, out, args[0], args[1])
        return builder.op(SHIFTS[name], x, by, dtype=out)
    if name in ("bitwise_not", "logical_not"):
        (x,) = builder.operands(node, None, args[0])
        if name == "logical_not" or out == "bool":
            return builder.op("not", convert(builder, x, "bool"), dtype="bool")
        return builder.op("invert", x, dtype=out)
    if name in ("isnan", "isinf"):
        return builder.op(name, builder.operands(node, "float32", args[0])[0], dtype="bool")
    if name == "div":
        mode = node.kwargs.get("rounding_mode", args[2] if len(args) > 2 else None)
        if out != "float32":
            raise Refused("integer division")
        x, y = builder.operands(node, out, args[0], args[1])
        quotient = builder.op("div", x, y)
        return quotient if mode is None else builder.op(mode, quotient)
    if name == "pow":
        return power(builder, node, out)
    if name in ("where", "masked_fill"):
        mask, yes, no = args if name == "where" else (args[1], args[2], args[0])
        (chosen,) = builder.operands(node, "bool", mask)
        a, b = builder.operands(node, out, yes, no)
        return builder.op("where", chosen, a, b, dtype=out)
    if name in ("clamp", "clamp_min", "clamp_max"):
        low = node.kwargs.get("min", args[1] if len(args) > 1 and name != "clamp_max" else None)
        high = node.kwargs.get("max", args[2] if len(args) > 2 else args[1] if name == "clamp_max" else None)
        (x,) = builder.operands(node, out, args[0])
        for bound, kind in ((low, "max"), (high, "min")):
            if bound is not None:
                x = builder.op(kind, x, builder.operands(node, out, bound)[0], dtype=out)
        return x
    if name in ("addcmul", "addcdiv") and out == "float32":
        x, a, b = builder.operands(node, out, *args[:3])
        y = builder.op("mul" if name == "addcmul" else "div", a, b)
        return builder.op("add", x, builder.op("mul", y, builder.const(plain(node.kwargs.get("value", 1)))))
    if name == "lerp" and out == "float32":
        a, b, w = builder.operands(node, out, *args[:3])
        return builder.op("add", a, builder.op("mul", w, builder.op("sub", b, a)))
    if name in ("triu", "tril"):
        return triangle(builder, node, name, out)
    if name in ACTIVATIONS and out == "float32":
        return activation(builder, node, name)
    raise Refused(f"{name} is left to PyTorch")


def convert(builder: Builder, x: str, dtype: str) -> str:
    if dtype == "bool" and builder.kernel.ops[x].dtype != "bool":
        return builder.op("ne", x, builder.const(0, builder.kernel.ops[x].dtype), dtype="bool")
    return builder.cast(x, dtype)


def triangle(builder: Builder, node: Node, name: str, out: str) -> str:
    """Zero below (triu) or above (tril) a diagonal."""
    (x,) = builder.operands(node, out, node.args[0])
    row, column = builder.maps[node.name][-2:]
    if len(row) != 1 or len(column) != 1:
        raise Refused("a triangle of a single row or column")
    diagonal = builder.const(plain(node.args[1]) if len(node.args) > 1 else 0, "int64")
    at, down = (builder.op("coord", dtype="int64", hint=hint, attr=axis[0]) for hint, axis in (("column", column), ("line", row)))
    away = builder.op("sub", at, down, dtype="int64")
    kept = builder.op("ge" if name == "triu" else "le", away, diagonal, dtype="bool", hint="kept")
    return builder.op("where", kept, x, builder.const(0, out), dtype=out)


def power(builder: Builder, node: Node, out: str) -> str:
    if out != "float32" or not isinstance(node.args[0], dict):
        raise Refused("powers of integers and of constants are left to PyTorch")
    exponent = plain(node.args[1])
    (x,) = builder.operands(node, out, node.args[0])
    if isinstance(exponent, dict):
        return builder.op("pow", x, builder.operands(node, out, exponent)[0])
    if exponent in (2, 3, 4):
        squared = builder.op("mul", x, x)
        return squared if exponent == 2 else builder.op("mul", squared, x if exponent == 3 else squared)
    if exponent == 1:
        return x
    named = {0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}
    if exponent in named:
        return builder.op(named[exponent], x)
    return builder.op("pow", x, builder.const(exponent))


def activation(builder: Builder, node: Node, name: str) -> str:
    (x,) = builder.operands(node, "float32", node.args[0])
    args = [plain(a) for a in node.args[1:]]
    const, op = builder.const, builder.op
    if name == "gelu":
        if node.kwargs.get("approximate", args[0] if args else "none") == "tanh":
            cube = op("mul", op("mul", x, x), x)
            inner = op("mul", op("add", x, op("mul", const(0.044715), cube)), const(math.sqrt(2 / math.pi)))
            gate = op("add", const(1), op("tanh", inner))
        else:
            gate = op("add", const(1), op("erf", op("mul", x, const(math.sqrt(0.5)))))
        return op("mul", op("mul", const(0.5), x), gate, hint="gelu")
    if name == "silu":
        return op("mul", x, op("sigmoid", x), hint="silu")
    if name in ("softplus", "mish", "log_sigmoid"):
        beta, threshold = (args + [1, 20][len(args) :])[:2] if name == "softplus" else (1, 20)
        z = op("mul", x, const(beta)) if beta != 1 else x
        if name == "log_sigmoid":
            z = op("neg", x)
        soft = softplus(builder, z)
        if name == "log_sigmoid":
            return op("neg", soft)
        if beta != 1:
            soft = op("div", soft, const(beta))
        if name == "softplus":
            return op("where", op("gt", z, const(threshold), dtype="bool"), x, soft, hint="softplus")
        return op("mul", x, op("tanh", soft), hint="mish")
    if name == "relu6":
        return op("min", op("max", x, const(0)), const(6), hint="relu6")
    if name in ("hardswish", "hardsigmoid"):
        gate = op("div", op("min", op("max", op("add", x, const(3)), const(0)), const(6)), const(6))
        return gate if name == "hardsigmoid" else op("mul", x, gate)
    if name == "hardtanh":
        low, high = (args + [-1, 1][len(args) :])[:2]
        return op("min", op("max", x, const(low)), const(high))
    if name == "leaky_relu":
        slope = args[0] if args else 0.01
        return op("where", op("gt", x, const(0), dtype="bool"), x, op("mul", x, const(slope)))
    alpha, scale, input_scale = (args + [1, 1, 1][len(args) :])[:3]
    low = op("mul", op("expm1", op("mul", x, const(input_scale)) if input_scale != 1 else x), const(alpha * scale))
    return op("where", op("gt", x, const(0), dtype="bool"), op("mul", x, const(scale)) if scale != 1 else x, low, hint="elu")


def softplus(builder: Builder, z: str) -> str:
    """log(1 + exp(z)) without overflow: max(z, 0) + log1p(exp(-|z|))."""
    small = builder.op("log1p", builder.op("exp", builder.op("neg", builder.op("abs", z))))
    return builder.op("add", builder.op("max", z, builder.const(0)), small)


def frozen_batch_norm(builder: Builder, node: Node) -> str:
    """Batch norm with the running statistics: one multiply-add a channel."""
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


def channel(builder: Builder, node: Node, argument: dict[str, Any] | None) -> str | None:
    """A vector over axis 1 of `node`."""
    return None if argument is None else builder.cast(builder.value(argument["ref"], (builder.maps[node.name][1],)), "float32")
