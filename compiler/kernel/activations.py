"""Lowers activation functions. Their results are float32 in registers; integer activations are left to PyTorch."""

from __future__ import annotations

import math

from compiler.graph.reductions import short
from compiler.kernel.builder import Builder
from compiler.kernel.lowering import argument, lowers
from verifier.graph import Node

FLOATS = ("float32",)


def first(builder: Builder, node: Node) -> str:
    return builder.operands(node, "float32", node.args[0])[0]


@lowers("aten.gelu", only=FLOATS)
def gelu(builder: Builder, node: Node) -> str:
    x, const, op = first(builder, node), builder.const, builder.op
    if argument(node, 1, "approximate", "none") == "tanh":
        cube = op("mul", op("mul", x, x), x)
        inner = op("mul", op("add", x, op("mul", const(0.044715), cube)), const(math.sqrt(2 / math.pi)))
        gate = op("add", const(1), op("tanh", inner))
    else:
        gate = op("add", const(1), op("erf", op("mul", x, const(math.sqrt(0.5)))))
    return op("mul", op("mul", const(0.5), x), gate, hint="gelu")


@lowers("aten.silu", only=FLOATS)
def silu(builder: Builder, node: Node) -> str:
    x = first(builder, node)
    return builder.op("mul", x, builder.op("sigmoid", x), hint="silu")


@lowers("aten.softplus", only=FLOATS)
def softplus(builder: Builder, node: Node) -> str:
    x, beta, threshold = first(builder, node), argument(node, 1, "beta", 1), argument(node, 2, "threshold", 20)
    z = builder.op("mul", x, builder.const(beta)) if beta != 1 else x
    soft = log_of_one_plus_exp(builder, z)
    if beta != 1:
        soft = builder.op("div", soft, builder.const(beta))
    return builder.op("where", builder.op("gt", z, builder.const(threshold), dtype="bool"), x, soft, hint="softplus")


@lowers("aten.mish", only=FLOATS)
def mish(builder: Builder, node: Node) -> str:
    x = first(builder, node)
    return builder.op("mul", x, builder.op("tanh", log_of_one_plus_exp(builder, x)), hint="mish")


@lowers("aten.log_sigmoid", only=FLOATS)
def log_sigmoid(builder: Builder, node: Node) -> str:
    return builder.op("neg", log_of_one_plus_exp(builder, builder.op("neg", first(builder, node))))


def log_of_one_plus_exp(builder: Builder, z: str) -> str:
    """Computes log(1 + exp(z)) without overflow, as max(z, 0) + log1p(exp(-|z|))."""
    small = builder.op("log1p", builder.op("exp", builder.op("neg", builder.op("abs", z))))
    return builder.op("add", builder.op("max", z, builder.const(0)), small)


@lowers("aten.relu6", only=FLOATS)
def relu6(builder: Builder, node: Node) -> str:
    x = first(builder, node)
    return builder.op("min", builder.op("max", x, builder.const(0)), builder.const(6), hint="relu6")


@lowers("aten.hardswish", "aten.hardsigmoid", only=FLOATS)
def hard(builder: Builder, node: Node) -> str:
    x, const, op = first(builder, node), builder.const, builder.op
    gate = op("div", op("min", op("max", op("add", x, const(3)), const(0)), const(6)), const(6))
    return gate if short(node) == "hardsigmoid" else op("mul", x, gate)


@lowers("aten.hardtanh", only=FLOATS)
def hardtanh(builder: Builder, node: Node) -> str:
    x, low, high = first(builder, node), argument(node, 1, "min_val", -1), argument(node, 2, "max_val", 1)
    return builder.op("min", builder.op("max", x, builder.const(low)), builder.const(high))


@lowers("aten.leaky_relu", only=FLOATS)
def leaky_relu(builder: Builder, node: Node) -> str:
    x, slope = first(builder, node), argument(node, 1, "negative_slope", 0.01)
    return builder.op("where", builder.op("gt", x, builder.const(0), dtype="bool"), x, builder.op("mul", x, builder.const(slope)))


@lowers("aten.elu", only=FLOATS)
def elu(builder: Builder, node: Node) -> str:
    x, const, op = first(builder, node), builder.const, builder.op
    alpha, scale, input_scale = argument(node, 1, "alpha", 1), argument(node, 2, "scale", 1), argument(node, 3, "input_scale", 1)
    low = op("mul", op("expm1", op("mul", x, const(input_scale)) if input_scale != 1 else x), const(alpha * scale))
    return op("where", op("gt", x, const(0), dtype="bool"), op("mul", x, const(scale)) if scale != 1 else x, low, hint="elu")
