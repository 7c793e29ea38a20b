"""Finds the 16-bit values on which a decision depends. Decisions are comparisons, rounding to integers, positions of maxima, and sort orders.

PyTorch rounds the result of every operator to its type, whereas kernels round only the values that they store. Near a threshold, or for values that
are equal in 16 bits, the two may therefore decide differently. The affected element is then completely different, not just off by a rounding error.
For this reason, kernels round the values that lead to a decision as if they were stored. The backward search stops at products: their sums are
rounded like any other value, but their operands are already in memory.
"""

from __future__ import annotations

from typing import Protocol

from compiler.graph.ir import FLOATS, HALVES
from compiler.graph.values import refs
from verifier.graph import Node
from verifier.task import TensorSpec

COMPARISONS = {"eq", "ne", "lt", "le", "gt", "ge", "isclose", "heaviside", "searchsorted", "bucketize", "histc"}
FINITE = {"isnan", "isinf", "isfinite", "isposinf", "isneginf", "fmax", "fmin"}  # rounding to 16 bits makes large values infinite
WHOLE = {"floor", "ceil", "round", "trunc", "sign", "sgn", "frac", "remainder", "fmod", "floor_divide"}
ORDERS = {"argmax", "argmin", "sort", "argsort", "topk", "max", "min", "kthvalue", "median", "mode", "cummax", "cummin", "msort", "nonzero"}
ANGLES = {"sin", "cos", "tan"}  # for large angles, rounding to an 8-bit mantissa changes the result completely
LOGICAL = {"logical_and", "logical_or", "logical_xor", "logical_not", "any", "all", "where"}
CASTS = {"_to_copy", "to"}
PRODUCTS = {
    "linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "mv", "dot", "conv1d", "conv2d", "conv3d", "convolution",
    "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "scaled_dot_product_attention", "einsum", "lstm", "gru", "rnn_tanh", "rnn_relu",
}  # fmt: skip


class Graph(Protocol):
    nodes: dict[str, Node]

    def spec(self, name: str) -> TensorSpec: ...


def deciding(network: Graph) -> frozenset[str]:
    """Returns the names of the 16-bit values that lead to a decision without a product in between."""
    waiting = [name for node in network.nodes.values() for name in _decided_by(network, node)]
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in seen or name not in network.nodes or not _floating(network, name):
            continue
        seen.add(name)
        node = network.nodes[name]
        if _name(node) not in PRODUCTS:
            waiting += refs([node.args, list(node.kwargs.values())])
    return frozenset(name for name in seen if network.nodes[name].outputs and network.spec(name).dtype in HALVES)


def _decided_by(network: Graph, node: Node) -> list[str]:
    """Returns the values on which a decision made by `node` depends."""
    name, read = _name(node), list(refs([node.args, list(node.kwargs.values())]))
    if name in COMPARISONS | FINITE | WHOLE | ORDERS | ANGLES or (name == "div" and _mode(node) is not None):
        return read
    if name in CASTS and node.outputs and node.outputs[0].dtype not in FLOATS:
        return read
    if name in LOGICAL:
        return read[:1] if name == "where" else read
    return []


def _mode(node: Node) -> object:
    return node.kwargs.get("rounding_mode", node.args[2] if len(node.args) > 2 else None)


def _floating(network: Graph, name: str) -> bool:
    """Returns whether the node has a floating-point result; a node without a recorded output counts as having one."""
    outputs = network.nodes[name].outputs
    return not outputs or any(spec.dtype in FLOATS | {"float64"} for spec in outputs)


def _name(node: Node) -> str:
    return node.op.split(".")[1] if "." in node.op else node.op
