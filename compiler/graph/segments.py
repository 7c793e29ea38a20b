"""Expresses means at computed positions, and extremes that ignore the previous value, as sums and extremes at computed positions (placing.py).

The terms per position are counted only once for all operators that share an index, and only once for all columns with the same index.
"""

from __future__ import annotations

from typing import Any

from compiler.graph.ir import FLOATS
from compiler.graph.layout import VIEWS
from compiler.graph.values import new_node
from verifier.graph import Node
from verifier.task import TensorSpec

REDUCES = {"aten.scatter_reduce.two", "aten.index_reduce.default"}
Shape = tuple[int, ...]


def spelled_out(nodes: list[Node], specs: dict[str, TensorSpec]) -> list[Node]:
    """Returns the nodes after rewriting means as sums divided by the number of terms. Extremes over the terms alone keep the previous value at
    positions without terms."""
    counts: dict[tuple[Any, ...], dict[str, str]] = {}
    makers = {node.name: node for node in nodes}
    return [made for node in nodes for made in (_Spelling(node, specs, makers, counts).nodes() if node.op in REDUCES else [node])]


class _Spelling:
    def __init__(self, node: Node, specs: dict[str, TensorSpec], makers: dict[str, Node], counts: dict[tuple[Any, ...], dict[str, str]]):
        self.node, self.specs, self.makers, self.counts = node, specs, makers, counts
        self.spec = node.outputs[0]
        self.add = "index_add.default" if node.op == "aten.index_reduce.default" else "scatter_add.default"
        self.made: list[Node] = []

    def make(self, name: str, op: str, args: list[Any], dtype: str = "", shape: Shape | None = None) -> dict[str, str]:
        dtype = dtype or self.spec.dtype
        kwargs = {"dtype": f"torch.{dtype}"} if op in ("full.default", "_to_copy.default") else {}
        kwargs |= {"device": "input"} if op == "full.default" else {}
        spec = TensorSpec(shape=self.spec.shape if shape is None else shape, dtype=dtype)
        self.made.append(new_node(self.node, f"{self.node.name}_{name}", f"aten.{op}", args, spec, kwargs))
        return {"ref": self.made[-1].name}

    def full(self, name: str, value: Any, dtype: str = "", shape: Shape | None = None) -> dict[str, str]:
        return self.make(name, "full.default", [list(self.spec.shape if shape is None else shape), value], dtype, shape)

    def nodes(self) -> list[Node]:
        with_self = self.node.kwargs.get("include_self", True)
        if len(self.node.args) < 5 or self.spec.dtype not in FLOATS or not self.spec.shape:
            return [self.node]
        begins, axis, index, terms, how = self.node.args
        if how not in ("mean", "amax", "amin") or (how != "mean" and with_self):
            return [self.node]
        count, shape = self.count(axis % len(self.spec.shape), index, bool(with_self))
        if how == "mean":
            whole = self.make("sum", self.add, [begins if with_self else self.full("start", 0), axis, index, terms])
            least = self.make("least", "clamp_min.default", [count, 1], "float32", shape)
            found = self.make("mean", "div.Tensor", [whole, self.make("times", "_to_copy.default", [least], shape=shape)])
        else:
            start = self.full("start", {"float": "-inf" if how == "amax" else "inf"})
            found = self.make("found", self.node.op.removeprefix("aten."), [start, axis, index, terms, how])
        if with_self:
            return [*self.made[:-1], self.made[-1].model_copy(update={"name": self.node.name})]
        some = self.make("some", "gt.Scalar", [count, 0], "bool", shape)
        return [*self.made, new_node(self.node, self.node.name, "aten.where.self", [some, found, begins], self.spec)]

    def count(self, axis: int, index: dict[str, str], with_self: bool) -> tuple[dict[str, str], Shape]:
        """Returns the number of terms at each position, and the shape of this count, which is broadcast over the result."""
        index, each = self.narrowed(axis, index)
        shape = tuple(self.spec.shape[at] if at == axis or size != 1 else 1 for at, size in enumerate(each))
        key = (self.add, axis, self.described(index["ref"]), each, shape, with_self)
        if key not in self.counts:
            first, one = self.full("none", int(with_self), "float32", shape), self.full("each", 1, "float32", each)
            self.counts[key] = self.make("count", self.add, [first, axis, index, one], "float32", shape)
        return self.counts[key], shape

    def described(self, name: str) -> str:
        """Describes a value by the views that create it, since the same index is often unsqueezed several times."""
        maker = self.makers.get(name)
        if maker is None or maker.op not in VIEWS:
            return name
        return f"{maker.op} {maker.args[1:]} {maker.outputs[0].shape} {self.described(maker.args[0]['ref'])}"

    def narrowed(self, axis: int, index: dict[str, str]) -> tuple[dict[str, str], Shape]:
        """Returns the index without the axes along which it is merely repeated, and the shape of the terms to count."""
        of_index, whole = tuple(self.specs[index["ref"]].shape), tuple(self.spec.shape)
        if self.add == "index_add.default":
            return index, tuple(of_index[0] if at == axis else 1 for at in range(len(whole)))
        maker = self.makers.get(index["ref"])
        source = maker.args[0] if maker is not None and maker.op == "aten.expand.default" else index
        narrow = tuple(self.specs[source["ref"]].shape)
        repeated = len(narrow) == len(whole) and all(
            size == of_index[at] or (at != axis and of_index[at] == whole[at]) for at, size in enumerate(narrow)
        )
        return (source, narrow) if repeated else (index, of_index)
