"""Describes sums and maxima at computed positions: `index_add`, `scatter_add`, `scatter_reduce` and accumulating `index_put`.

Such an operation on a 16-bit type becomes an fp32 operation with casts before and after it. An element may be the sum of thousands of terms, and
16-bit atomics would round it after every addition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from compiler.graph.ir import HALVES
from compiler.graph.values import new_node, plain
from verifier.graph import Node
from verifier.task import TensorSpec

HOW = {"sum": "sum", "amax": "amax", "amin": "amin"}
NAMES = {"index_add", "index_reduce", "scatter_add", "scatter_reduce", "index_put"}
COVERED = {"float32", "int64", "int32"}


class Graph(Protocol):
    nodes: dict[str, Node]
    last: set[str]

    def spec(self, name: str) -> TensorSpec: ...


@dataclass(frozen=True)
class Pick:
    """An axis of the result along which the position is read from `index`. The index is broadcast over the axes `over` of the terms."""

    axis: int
    index: str
    over: tuple[int, ...]


@dataclass(frozen=True)
class Placing:
    """A reduction whose results are stored at computed positions. The initial value of the result is `begins`. Each element of `terms` (broadcast to
    `shape`), multiplied by `factor`, is combined with one element of the result. Along the axes in `picks`, the position of that element is read from
    an index; along the other axes, it is the position on the terms' axis that `along` specifies."""

    how: str
    begins: str
    terms: str
    factor: float
    shape: tuple[int, ...]
    picks: tuple[Pick, ...]
    along: tuple[int, ...]  # -1 for picked axes
    wraps: bool  # whether negative positions count from the end


def placing(network: Graph, node: Node) -> Placing | None:
    """Returns the placing that `node` performs, or None if it performs none or if the library handles this form."""
    name = node.op.split(".")[1] if "." in node.op else ""
    if name not in NAMES or len(node.outputs) != 1 or node.outputs[0].dtype not in COVERED or node.name in network.last:
        return None
    whole = tuple(node.outputs[0].shape)
    found = _of_tensors(network, node, whole) if name == "index_put" else _of_axis(network, node, name, whole)
    if found is None or 0 in found.shape or 0 in whole:
        return None
    if found.how != "sum" and _number(network, found.begins) is None:
        return None  # the initial value may be NaN, which a kernel would order below or above all numbers depending on its sign
    return found if network.spec(found.terms).dtype == node.outputs[0].dtype else None


def _of_axis(network: Graph, node: Node, name: str, whole: tuple[int, ...]) -> Placing | None:
    """Handles reductions along one axis, with a vector of positions (`index_...`) or with one position per term."""
    if not whole or not isinstance(node.args[2], dict) or not isinstance(node.args[3], dict):
        return None
    axis, index, terms = plain(node.args[1]) % len(whole), node.args[2]["ref"], node.args[3]["ref"]
    shape, of_terms = tuple(network.spec(index).shape), tuple(network.spec(terms).shape)
    how = HOW.get(plain(node.args[4])) if name.endswith("reduce") else "sum"
    alone = node.kwargs.get("include_self", True) is False and not (how == "sum" and _number(network, node.args[0]["ref"]) == 0)
    if how is None or alone or len(of_terms) != len(whole):
        return None
    every = tuple(range(len(whole)))
    if name.startswith("index_"):
        if len(shape) != 1 or shape[0] != of_terms[axis] or any(of_terms[a] != whole[a] for a in every if a != axis):
            return None
        pick = Pick(axis, index, (axis,))
    else:
        if shape != of_terms:  # the operation uses only some of the terms
            return None
        pick = Pick(axis, index, every)
    factor = plain(node.kwargs.get("alpha", 1))
    return Placing(how, node.args[0]["ref"], terms, factor, of_terms, (pick,), tuple(-1 if a == axis else a for a in every), False)


def _number(network: Graph, name: str) -> float | None:
    """Returns the number that fills `name` if it is a filled tensor and the number is not NaN, otherwise None."""
    maker = network.nodes.get(name)
    value = plain(maker.args[1]) if maker is not None and maker.op == "aten.full.default" else None
    return value if isinstance(value, (int, float)) and value == value else None


def _of_tensors(network: Graph, node: Node, whole: tuple[int, ...]) -> Placing | None:
    """Handles positions along neighbouring axes whose indices are broadcast against each other. Only sums are supported, since their order does not
    matter."""
    given = node.args[1]
    axes = [axis for axis, one in enumerate(given) if one is not None]
    if len(node.args) < 4 or node.args[3] is not True or not axes or axes != list(range(axes[0], axes[-1] + 1)):
        return None
    shapes = [tuple(network.spec(given[axis]["ref"]).shape) for axis in axes]
    if any(network.spec(given[axis]["ref"]).dtype not in ("int64", "int32") for axis in axes):
        return None  # a mask
    rank = max(map(len, shapes))
    lead = tuple(max(shape[len(shape) - n] if len(shape) >= n else 1 for shape in shapes) for n in range(rank, 0, -1))
    shape = (*whole[: axes[0]], *lead, *whole[axes[-1] + 1 :])
    of_terms = tuple(network.spec(node.args[2]["ref"]).shape)
    if len(of_terms) > len(shape):
        return None
    over = tuple(range(axes[0], axes[0] + rank))
    along = tuple(-1 if axis in axes else axis if axis < axes[0] else axis - len(axes) + rank for axis in range(len(whole)))
    picks = tuple(Pick(axis, given[axis]["ref"], over) for axis in axes)
    return Placing("sum", node.args[0]["ref"], node.args[2]["ref"], 1, shape, picks, along, True)


def widened(nodes: list[Node], specs: dict[str, TensorSpec]) -> list[Node]:
    """Returns the nodes after replacing 16-bit sums at computed positions with fp32 sums."""
    makers = {node.name: node for node in nodes}
    result: list[Node] = []
    for node in nodes:
        name = node.op.split(".")[1] if "." in node.op else ""
        at = 2 if name == "index_put" else 3
        joins = name in NAMES and (name != "index_put" or len(node.args) > 3 and node.args[3] is True)
        if not joins or len(node.outputs) != 1 or node.outputs[0].dtype not in HALVES or not isinstance(node.args[at], dict):
            result.append(node)
            continue
        args = list(node.args)
        for position, suffix in ((0, "begins"), (at, "terms")):
            made = _wide(node, args[position]["ref"], f"{node.name}_{suffix}", makers, specs)
            result.append(made)
            args[position] = {"ref": made.name}
        whole = new_node(node, f"{node.name}_whole", node.op, args, _as_float(node.outputs[0]), dict(node.kwargs))
        narrow = {"dtype": f"torch.{node.outputs[0].dtype}"}
        result += [whole, new_node(node, node.name, "aten._to_copy.default", [{"ref": whole.name}], node.outputs[0], narrow)]
    return result


def _wide(node: Node, value: str, name: str, makers: dict[str, Node], specs: dict[str, TensorSpec]) -> Node:
    """Adds a node with the value in fp32. Constants are created in fp32 directly."""
    maker, spec = makers.get(value), _as_float(specs[value])
    if maker is not None and maker.op == "aten.full.default":
        return new_node(node, name, maker.op, list(maker.args), spec, {**maker.kwargs, "dtype": "torch.float32"})
    return new_node(node, name, "aten._to_copy.default", [{"ref": value}], spec, {"dtype": "torch.float32"})


def _as_float(spec: TensorSpec) -> TensorSpec:
    return TensorSpec(shape=spec.shape, dtype="float32")
