"""Computes variances in one pass: rows that do not fit in fast memory are read once for the mean and the variance instead of twice.

`sum((x - mean)^2)` becomes `sum(x^2) - sum(x) * mean`, computed entirely in double precision. Squares of single-precision numbers are exact in double
precision. Cancellation multiplies the relative error of double precision (53 bits) by mean^2 / variance. The product is still smaller than the error
that single precision has already introduced in the input.
"""

from __future__ import annotations

from dataclasses import replace

from compiler.graph.ir import Kernel, Op


def one_pass(kernel: Kernel) -> Kernel:
    """Rewrites such sums of squares. Returns the kernel unchanged if it has none."""
    found = {op.name: source for op in kernel.ops.values() if (source := _centred(kernel, op)) is not None}
    if not found:
        return kernel
    ops: dict[str, Op] = {}
    totals = {total for _, total in found.values()}
    wide: dict[str, str] = {}  # x -> its cast
    for op in kernel.ops.values():
        if op.name in totals:
            (x,) = op.args
            wide[x] = _put(ops, Op(_fresh(kernel, f"{x}_wide"), "cast", (x,), "float64", "full"))
            ops[op.name] = replace(op, args=(wide[x],), dtype="float64")
        elif op.name in found:
            x, total = found[op.name]
            square = _put(ops, Op(_fresh(kernel, f"{op.name}_each"), "mul", (wide[x], wide[x]), "float64", "full"))
            raw = _put(ops, Op(_fresh(kernel, f"{op.name}_raw"), "reduce", (square,), "float64", "row", "sum"))
            length = _put(ops, Op(_fresh(kernel, "elements"), "const", (), "float64", "row", kernel.length))
            mean = _put(ops, Op(_fresh(kernel, f"{op.name}_mean"), "div", (total, length), "float64", "row"))
            part = _put(ops, Op(_fresh(kernel, f"{op.name}_of_mean"), "mul", (total, mean), "float64", "row"))
            left = _put(ops, Op(_fresh(kernel, f"{op.name}_left"), "sub", (raw, part), "float64", "row"))
            zero = _put(ops, Op(_fresh(kernel, "nothing"), "const", (), "float64", "row", 0))
            below = _put(ops, Op(_fresh(kernel, f"{op.name}_below"), "lt", (left, zero), "bool", "row"))
            ops[op.name] = Op(op.name, "where", (below, zero, left), "float32", "row")  # rounding can make the result negative; NaN is preserved
        else:
            ops[op.name] = op
    return _without_unused(replace(kernel, ops=ops))


def _centred(kernel: Kernel, op: Op) -> tuple[str, str] | None:
    """Returns (x, its sum) if `op` sums the squares of x minus its mean."""
    if op.kind != "reduce" or op.attr != "sum" or op.dtype != "float32":
        return None
    square = kernel.ops[op.args[0]]
    if square.kind != "mul" or square.args[0] != square.args[1]:
        return None
    centred = kernel.ops[square.args[0]]
    if centred.kind != "sub":
        return None
    x, mean = (kernel.ops[name] for name in centred.args)
    if mean.kind != "div" or x.level != "full":
        return None
    total, length = (kernel.ops[name] for name in mean.args)
    if total.kind != "reduce" or total.attr != "sum" or total.args != (x.name,) or length.kind != "const" or length.attr != kernel.length:
        return None
    return x.name, total.name


def _put(ops: dict[str, Op], op: Op) -> str:
    for other in ops.values():
        if (other.kind, other.args, other.dtype, other.attr) == (op.kind, op.args, op.dtype, op.attr) and op.kind != "reduce":
            return other.name
    ops[op.name] = op
    return op.name


def _fresh(kernel: Kernel, name: str) -> str:
    while name in kernel.ops or name in kernel.arguments:
        name += "_"
    return name


def _without_unused(kernel: Kernel) -> Kernel:
    wanted = {store.op for store in kernel.stores}
    for op in reversed(list(kernel.ops.values())):
        if op.name in wanted:
            wanted.update(op.args)
    return replace(kernel, ops={name: op for name, op in kernel.ops.items() if name in wanted})
