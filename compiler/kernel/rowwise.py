"""Emits reductions as scalar operations over one row. Each entry fills the builder's `values` and `maps` for one operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from compiler.graph.ir import FLOATS
from compiler.graph.layout import contiguous_strides
from compiler.graph.network import plain
from compiler.graph.reductions import BATCH_NORM, PLACES, POOLS, short
from compiler.kernel.builder import Builder, Refused
from compiler.kernel.indexing import Place, load_at
from compiler.kernel.pointwise import channel
from verifier.graph import Node


def declare(builder: Builder, node: Node) -> None:
    """Sets the axis map of `node`'s result, to which later operators align."""
    name = short(node)
    if name in FULL:
        builder.maps[node.name] = builder.full
    elif name in BATCH_NORM:
        for user in builder.network.users[node.name]:
            item = builder.network.nodes[user].args[1]
            if item in (1, 2):
                raise Refused("the saved statistics of batch norm are read")
            builder.maps[user] = builder.full if item == 0 else (builder.full[1],)
    elif name in POOLS:
        builder.maps[node.name] = builder.row_map(keep=True)
    elif name in ("cross_entropy_rows", "mean_counted"):
        builder.maps[node.name] = builder.row_map(keep=False)
    else:
        keep = len(builder.network.spec(node.name).shape) == len(builder.shape)
        builder.maps[node.name] = builder.row_map(keep)


def emit(builder: Builder, node: Node) -> None:
    name = short(node)
    source = node.args[0]["ref"]
    if builder.network.spec(source).dtype not in FLOATS:
        raise Refused(f"a reduction of {builder.network.spec(source).dtype} is left to PyTorch")
    if builder.network.nodes.get(node.name) and name not in BATCH_NORM | PLACES and builder.network.spec(node.name).dtype not in FLOATS:
        raise Refused(f"a reduction to {builder.network.spec(node.name).dtype} is left to PyTorch")
    x = builder.value(source, builder.full)
    if name in BATCH_NORM:
        batch_norm(builder, node, x)
    else:
        builder.values[node.name] = EMIT[name](builder, node, x)


def length(builder: Builder) -> str:
    return builder.const(builder.kernel.length)


def mean(builder: Builder, node: Node, x: str) -> str:
    if short(node) == "mean" and node.kwargs.get("dtype") not in (None, *(f"torch.{dtype}" for dtype in FLOATS)):
        raise Refused("a mean in another type")
    return builder.op("div", builder.reduce("sum", x), length(builder), hint="mean")


def moments(builder: Builder, node: Node, x: str, correction: float = 0) -> tuple[str, str, str]:
    """Returns (mean, x - mean, variance); a second pass over the row computes the variance."""
    average = mean(builder, node, x) if short(node) != "mean" else ""
    centred = builder.op("sub", x, average, hint="centred")
    squares = builder.reduce("sum", builder.op("mul", centred, centred), hint="squares")
    return average, centred, builder.op("div", squares, builder.const(max(builder.kernel.length - correction, 0)), hint="variance")


def softmax(builder: Builder, node: Node, x: str) -> str:
    if len(node.args) > 2 and node.args[2] not in (None, False, *(f"torch.{dtype}" for dtype in FLOATS)):
        raise Refused("a softmax in another type")
    top = builder.reduce("max", x, hint="top")
    e = builder.op("exp", builder.op("sub", x, top), hint="e")
    return builder.op("mul", e, builder.op("reciprocal", builder.reduce("sum", e), hint="scale"))


def log_softmax(builder: Builder, node: Node, x: str) -> str:
    top = builder.reduce("max", x, hint="top")
    shifted = builder.op("sub", x, top, hint="shifted")
    return builder.op("sub", shifted, builder.op("log", builder.reduce("sum", builder.op("exp", shifted)), hint="log_total"))


def logsumexp(builder: Builder, node: Node, x: str) -> str:
    """Shifts a row by its maximum, unless that is infinite: the result for a row of nothing but -inf is -inf."""
    top = builder.reduce("max", x, hint="top")
    base = builder.op("where", builder.op("isinf", top, dtype="bool"), builder.const(0), top, hint="base")
    return log_of_sum(builder, x, base)


def log_of_sum(builder: Builder, x: str, top: str) -> str:
    total = builder.reduce("sum", builder.op("exp", builder.op("sub", x, top)))
    return builder.op("add", top, builder.op("log", total))


def cross_entropy(builder: Builder, node: Node, x: str) -> str:
    """Computes log(sum(exp(x))) - x[target]. The result is 0 for an ignored target and NaN for a target that is not a valid class."""
    source, target = node.args[0]["ref"], node.args[1]["ref"]
    if builder.computed_here(source):
        raise Refused("the logits are computed in the same kernel")
    rows = builder.maps[node.name]
    picked = builder.cast(builder.value(target, rows), "int64")
    lse = log_of_sum(builder, x, builder.reduce("max", x, hint="top"))  # NaN for an infinite maximum, as log_softmax
    chosen = load_at(builder, source, [Place(1, picked, checked=True)], (rows[0], ()), "chosen")
    ignored = builder.op("eq", picked, builder.const(node.args[2], "int64"), dtype="bool")
    return builder.op("where", ignored, builder.const(0), builder.op("sub", lse, chosen), hint="loss")


def mean_counted(builder: Builder, node: Node, x: str) -> str:
    """Divides the sum of the losses by the number of targets that are not ignored."""
    target = builder.value(node.args[1]["ref"], builder.full)
    counted = builder.op("ne", builder.cast(target, "int64"), builder.const(node.args[2], "int64"), dtype="bool")
    return builder.op("div", builder.reduce("sum", x), builder.reduce("sum", builder.cast(counted, "float32"), hint="counted"))


def affine(builder: Builder, y: str, weight: str | None, bias: str | None) -> str:
    y = builder.op("mul", y, weight) if weight else y
    return builder.op("add", y, bias) if bias else y


def layer_norm(builder: Builder, node: Node, x: str) -> str:
    rank = len(node.args[1])
    weight, bias = (trailing(builder, argument, rank) for argument in (*node.args[2:4], *[None] * (4 - len(node.args[:4]))))
    eps = plain(node.args[4]) if len(node.args) > 4 else 1e-5
    _, centred, variance = moments(builder, node, x)
    scale = builder.op("rsqrt", builder.op("add", variance, builder.const(eps)), hint="scale")
    return affine(builder, builder.op("mul", centred, scale, hint="normalised"), weight, bias)


def rms_norm(builder: Builder, node: Node, x: str) -> str:
    weight = trailing(builder, node.args[2] if len(node.args) > 2 else None, len(node.args[1]))
    eps = plain(node.args[3]) if len(node.args) > 3 and node.args[3] is not None else 2.0**-23
    square = builder.op("div", builder.reduce("sum", builder.op("mul", x, x), hint="squares"), length(builder), hint="mean_square")
    scale = builder.op("rsqrt", builder.op("add", square, builder.const(eps)), hint="scale")
    return affine(builder, builder.op("mul", x, scale, hint="normalised"), weight, None)


def trailing(builder: Builder, argument: dict[str, Any] | None, rank: int) -> str | None:
    return None if argument is None else builder.value(argument["ref"], builder.full[len(builder.full) - rank :])


def group_norm(builder: Builder, node: Node, x: str) -> str:
    args = [*node.args, *[None] * (5 - len(node.args))]
    weight, bias = (None if a is None else builder.value(a["ref"], (builder.full[1],)) for a in args[2:4])
    eps = 1e-5 if args[4] is None else plain(args[4])
    _, centred, variance = moments(builder, node, x)
    scale = builder.op("rsqrt", builder.op("add", variance, builder.const(eps)), hint="scale")
    return affine(builder, builder.op("mul", centred, scale, hint="normalised"), weight, bias)


def batch_norm(builder: Builder, node: Node, x: str) -> None:
    """Normalises with batch statistics. Results 3 and 4 are the running mean and the (unbiased) running variance after this batch."""
    weight, bias, *statistics, _, momentum, eps = (plain(a) for a in node.args[1:])
    average, centred, variance = moments(builder, node, x)
    scale = builder.op("rsqrt", builder.op("add", variance, builder.const(eps)), hint="scale")
    normalised = builder.op("mul", centred, scale, hint="normalised")
    n = builder.kernel.length
    for user in builder.network.users[node.name]:
        item = builder.network.nodes[user].args[1]
        if item == 0:
            builder.values[user] = affine(builder, normalised, channel_row(builder, weight), channel_row(builder, bias))
        elif item in (3, 4):
            old = channel_row(builder, statistics[0 if item == 3 else 1])
            if old is None:
                raise Refused("batch norm without running statistics")
            new = average if item == 3 else builder.op("mul", variance, builder.const(n / max(n - 1, 1)))
            kept = builder.op("mul", old, builder.const(1 - momentum))
            builder.values[user] = builder.op("add", kept, builder.op("mul", new, builder.const(momentum)))
        else:
            raise Refused("the saved statistics of batch norm are read")


def channel_row(builder: Builder, argument: dict[str, Any] | None) -> str | None:
    return None if argument is None else builder.value(argument["ref"], (builder.full[1],))


def variance(builder: Builder, node: Node, x: str) -> str:
    args = [plain(a) for a in node.args[1:]]
    if ".correction" in node.op:
        correction = node.kwargs.get("correction", 1)
    else:
        unbiased = args[0] if node.op.endswith(".default") and args else args[1] if len(args) > 1 else True
        correction = 1 if unbiased is not False else 0
    found = moments(builder, node, x, 1 if correction is None else plain(correction))[2]
    return builder.op("sqrt", found) if short(node) == "std" else found


def norm(builder: Builder, node: Node, x: str) -> str:
    order = plain(node.args[1]) if len(node.args) > 1 else 2
    if order == 1:
        return builder.reduce("sum", builder.op("abs", x))
    return builder.op("sqrt", builder.reduce("sum", builder.op("mul", x, x), hint="squares"), hint="norm")


def place(builder: Builder, node: Node, x: str) -> str:
    """Returns the position of the largest (smallest) element of a row, or the first such position in case of ties. NaN counts as the largest
    (smallest) value."""
    if builder.kernel.length >= 2**31 or builder.kernel.ops[x].level != "full":
        raise Refused("a place in a row of 2^31 elements, or in one of equal elements")
    if short(node) == "argmin":
        x = builder.op("neg", x)
    at = ""
    axes = builder.kernel.inner
    for axis, stride in zip(axes, contiguous_strides(tuple(builder.sizes[axis] for axis in axes)), strict=True):
        step = builder.op("coord", dtype="int64", hint="at", attr=axis)
        step = builder.op("mul", step, builder.const(stride, "int64"), dtype="int64") if stride != 1 else step
        at = builder.op("add", at, step, dtype="int64") if at else step
    return builder.op("reduce", x, at, dtype="int64", attr="argmax", hint="place")


def pool(builder: Builder, node: Node, x: str) -> str:
    return builder.reduce("amax", x, hint="best") if short(node) == "max_pool2d" else mean(builder, node, x)


EMIT: dict[str, Callable[[Builder, Node, str], str]] = {
    "softmax": softmax, "_softmax": softmax, "log_softmax": log_softmax, "_log_softmax": log_softmax, "logsumexp": logsumexp,
    "layer_norm": layer_norm, "rms_norm": rms_norm, "group_norm": group_norm, "mean": mean, "var": variance, "std": variance,
    "sum": lambda builder, node, x: builder.reduce("sum", x), "amax": lambda builder, node, x: builder.reduce("amax", x, hint="top"),
    "amin": lambda builder, node, x: builder.reduce("amin", x, hint="least"), "linalg_vector_norm": norm, "max_pool2d": pool, "avg_pool2d": pool,
    "argmax": place, "argmin": place, "cross_entropy_rows": cross_entropy, "mean_counted": mean_counted,
    "cumsum": lambda builder, node, x: builder.op("scan", x, attr="sum", hint="running"),
}  # fmt: skip
FULL = {"softmax", "_softmax", "log_softmax", "_log_softmax", "layer_norm", "rms_norm", "group_norm", "cumsum"}
assert set(EMIT) >= FULL

__all__ = ["declare", "emit", "channel"]
