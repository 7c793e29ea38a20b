"""Finds writes to a part of an input or of module state that can happen in the memory of that tensor.

The capture is functional: `keys[rows, :, positions] = k` becomes an operator that returns a changed copy of `keys`, and the copy becomes the final
value of the input. If nothing reads the old contents afterwards, the program can write the changed elements into `keys` itself, which moves only
these elements.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from compiler.graph.layout import Layout
from compiler.graph.regions import REGION
from compiler.graph.values import refs
from verifier.graph import Graph, GraphInput, Node
from verifier.task import TensorSpec

INDEXED = {"index_put", "index_copy", "index_fill"}
SCATTERS = {"scatter"}
SUMS = {"index_add", "index_reduce", "scatter_add", "scatter_reduce"}  # read the elements that they change
PARTS = {"slice_scatter", "select_scatter"}
OVERLOADS = {"default", "src", "value", "two", "int_Scalar", "int_Tensor"}
# Operators other than the known views whose result can share memory with their argument, at least in some cases.
ALIASES = {
    "view", "reshape", "reshape_as", "view_as", "_reshape_alias", "flatten", "unflatten", "ravel", "contiguous", "to", "type_as", "cpu", "cuda",
    "as_strided", "narrow", "diagonal", "linalg_diagonal", "unfold", "expand_as", "broadcast_to", "broadcast_tensors", "meshgrid", "movedim",
    "moveaxis", "swapaxes", "swapdims", "adjoint", "mT", "mH", "numpy_T", "matrix_H", "tensor_split", "hsplit", "vsplit", "dsplit", "unsafe_split",
    "unsafe_split_with_sizes", "unsafe_chunk", "view_as_real", "view_as_complex", "real", "imag", "conj", "_conj", "conj_physical", "_neg_view",
    "resolve_conj", "resolve_neg", "positive", "lift", "lift_fresh", "atleast_1d", "atleast_2d", "atleast_3d", "squeeze", "einsum", "chain_matmul",
    "dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout", "sum_to_size", "_grad_sum_to_size", "slice_inverse",
}  # fmt: skip


class Values(Protocol):
    graph: Graph
    nodes: dict[str, Node]
    inputs: dict[str, GraphInput]
    layouts: dict[str, Layout]
    results: list[str]
    last: set[str]

    def spec(self, name: str) -> TensorSpec: ...
    def base(self, name: str) -> str: ...
    def readers(self, name: str) -> set[str]: ...
    def escapes(self, name: str) -> bool: ...


@dataclass(frozen=True)
class Overwrite:
    """A write into the memory of `source`, which is the input or state `root` or the result of an earlier write to it. At most `written` elements
    change. `adds` means that the write also reads these elements. `final` means that its result is the root's value after forward."""

    source: str
    root: str
    written: int
    adds: bool
    final: bool


def overwriting(network: Values) -> dict[str, Overwrite]:
    """Returns the operators whose result can lie in the memory of their first argument, provided that all other operators in `network.readers` of
    that argument run first. Each of these precedes the operator in the graph."""
    finals = final_values(network)
    place = {name: at for at, name in enumerate(network.nodes)}
    found: dict[str, Overwrite] = {}
    for node in network.nodes.values():
        source = _source(node)
        root = found[source].root if source in found else source
        if not source or root not in finals or not _may_write(network, node, source, place):
            continue
        kept = [name for name in network.results if network.base(name) == node.name]
        if any(name != finals[root] or not _whole(network, name, root) for name in kept) or len(kept) > 1:
            continue  # forward returns it, or it becomes the value of another tensor
        adds = _adds(node)
        found[node.name] = Overwrite(source, root, _written(network, node), adds, bool(kept))
    return found


def final_values(network: Values) -> dict[str, str]:
    """Returns the value after forward of each tensor that the caller sees change and whose memory the program may write: the inputs that forward
    changes, and state that kernels read where it lies."""
    found = dict(network.graph.mutated_inputs)
    for entry in network.inputs.values():
        state = entry.kind in ("parameter", "buffer") and entry.target in network.graph.mutations
        if state and entry.spec is not None and entry.spec.stride is None:
            found[entry.name] = network.graph.mutations[entry.target]
    return found


def _source(node: Node) -> str:
    """Returns the tensor of which the operator writes a part, or "" if it is another kind of operator."""
    _, name, overload = (*node.op.split("."), "", "")[:3]
    known = name in INDEXED | SCATTERS | SUMS | PARTS and overload in OVERLOADS and node.op.startswith("aten.")
    first = node.args[0] if node.args and (known or node.op == REGION) else None
    return first["ref"] if isinstance(first, dict) and "ref" in first else ""


def _may_write(network: Values, node: Node, source: str, place: dict[str, int]) -> bool:
    if source in network.last or node.name in network.last or len(node.outputs) != 1:
        return False
    mine, theirs = node.outputs[0], network.spec(source)
    if (tuple(mine.shape), mine.dtype) != (tuple(theirs.shape), theirs.dtype) or network.base(source) != source or network.escapes(source):
        return False
    if any(network.base(name) == source for name in refs([node.args[1:], list(node.kwargs.values())])):
        return False  # it would read what it writes
    others = network.readers(source) - {node.name}
    return all(place[name] < place[node.name] and _fresh(network.nodes[name]) for name in others)


def _fresh(node: Node) -> bool:
    return node.op.split(".")[1] not in ALIASES if "." in node.op else True


def _whole(network: Values, name: str, root: str) -> bool:
    return network.layouts[name].contiguous and tuple(network.spec(name).shape) == tuple(network.spec(root).shape)


def _adds(node: Node) -> bool:
    name = node.op.split(".")[1]
    return name in SUMS or name == "index_put" and len(node.args) > 3 and node.args[3] is True


def _written(network: Values, node: Node) -> int:
    """Returns the largest number of elements that the operator can change."""
    name, shape = node.op.split(".")[1], tuple(node.outputs[0].shape)
    whole = math.prod(shape)
    if node.op == REGION or name in PARTS:
        return math.prod(network.spec(node.args[1]["ref"]).shape)
    if name != "index_put":
        along = math.prod(network.spec(node.args[2]["ref"]).shape)
        across = whole // max(shape[node.args[1]], 1) if name.startswith("index_") and shape else 1
        return min(along * across, whole)
    axes = {axis: network.spec(one["ref"]) for axis, one in enumerate(node.args[1]) if one is not None}
    if any(spec.dtype in ("bool", "uint8") for spec in axes.values()):
        return whole  # a mask
    rank = max((len(spec.shape) for spec in axes.values()), default=0)
    lead = math.prod(max((spec.shape[-n] for spec in axes.values() if len(spec.shape) >= n), default=1) for n in range(1, rank + 1))
    return min(lead * math.prod(size for axis, size in enumerate(shape) if axis not in axes), whole)


__all__ = ["Overwrite", "final_values", "overwriting"]
