"""Finds writes to a part of an input or of module state that can happen in the memory of that tensor.

The capture is functional: `keys[rows, :, positions] = k` becomes an operator that returns a changed copy of `keys`, and the copy becomes the final
value of the input. If nothing reads the old contents afterwards, the program can write the changed elements into `keys` itself, which moves only
these elements.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

from compiler.graph.layout import Layout
from compiler.graph.regions import REGION, cuts_of, region, squeezed
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
    users: dict[str, list[str]]
    overwrites: dict[str, Overwrite]

    def spec(self, name: str) -> TensorSpec: ...
    def base(self, name: str) -> str: ...
    def readers(self, name: str) -> set[str]: ...
    def escapes(self, name: str) -> bool: ...


@dataclass(frozen=True)
class Overwrite:
    """A write into the memory of `source`, which is the input or state `root` or the result of an earlier write to it. At most `written` elements
    change. `adds` means that the write also reads as many elements. `final` means that its result is the root's value after forward.

    A write to a view of `source` has two operators: one that changes the contents of the view, and one that puts the result in the place of the view.
    In the first, `then` is the second; in the second, `part` is the first. If the first happens in place, the second has nothing left to do."""

    source: str
    root: str
    written: int
    adds: bool
    final: bool
    then: str = ""
    part: str = ""


def overwriting(network: Values) -> dict[str, Overwrite]:
    """Returns the operators whose result can lie in the memory of their first argument, provided that all other operators in `network.readers` of
    that argument run first (`old_readers`). Each of these precedes the operator in the graph."""
    finals = final_values(network)
    place = {name: at for at, name in enumerate(network.nodes)}
    found: dict[str, Overwrite] = {}
    for node in network.nodes.values():
        view = _source(node)
        source = network.base(view)
        root = found[source].root if source in found else source
        if not view or root not in finals or not _may_write(network, node, view, source, place):
            continue
        kept = [name for name in network.results if network.base(name) == node.name]
        if any(name != finals[root] or not _whole(network, name, root) for name in kept) or len(kept) > 1:
            continue  # forward returns it, or it becomes the value of another tensor
        part = _part(network, node, source, place) if view == source else ""
        if part:
            inner = network.nodes[part]
            found[part] = Overwrite(source, root, _written(network, inner), _adds(network, inner), False, then=node.name)
        found[node.name] = Overwrite(source, root, _written(network, node), _adds(network, node), bool(kept), part=part)
    return found


def old_readers(network: Values, name: str) -> set[str]:
    """Returns the operators that must run before `name`, an operator of `network.overwrites`, because they read what it overwrites."""
    write = network.overwrites[name]
    return network.readers(write.source) - {name, write.then}


def final_values(network: Values) -> dict[str, str]:
    """Returns the value after forward of each tensor that visibly changes for the caller and whose memory the program may write: the inputs that
    forward changes, and state that kernels read in place."""
    found = dict(network.graph.mutated_inputs)
    for entry in network.inputs.values():
        state = entry.kind in ("parameter", "buffer") and entry.target in network.graph.mutations
        if state and entry.spec is not None and entry.spec.stride is None:
            found[entry.name] = network.graph.mutations[entry.target]
    return found


def _source(node: Node) -> str:
    """Returns the tensor that the operator partly overwrites, or "" for any other kind of operator."""
    _, name, overload = (*node.op.split("."), "", "")[:3]
    known = name in INDEXED | SCATTERS | SUMS | PARTS and overload in OVERLOADS and node.op.startswith("aten.")
    first = node.args[0] if node.args and (known or node.op == REGION) else None
    return first["ref"] if isinstance(first, dict) and "ref" in first else ""


def _may_write(network: Values, node: Node, view: str, source: str, place: dict[str, int]) -> bool:
    """`view` is `source` itself or the same elements in the same order in another shape."""
    whole = network.layouts[view].contiguous and math.prod(network.spec(view).shape) == math.prod(network.spec(source).shape)
    if not whole or network.escapes(source) or not _fits(network, node, view):
        return False
    given = node.args[2:] if _scatters_part(node) else node.args[1:]  # a part of the source itself is copied first
    if _reads(network, given, source) or _reads(network, list(node.kwargs.values()), source):
        return False  # it would read what it writes
    return _come_first(network, network.readers(source) - {node.name}, node.name, place)


def _part(network: Values, node: Node, source: str, place: dict[str, int]) -> str:
    """Returns the operator that changes the contents of the view of `source` that `node` replaces, if only `node` reads its result, or "" if there is
    no such operator."""
    cuts = cuts_of(node, {source: network.spec(source)})
    part = node.args[1]["ref"] if cuts else ""
    while part in network.nodes and network.nodes[part].op == "aten.unsqueeze.default" and len(network.users[part]) == 1:
        part = network.nodes[part].args[0]["ref"]
    inner = network.nodes.get(part)
    seen = _source(inner) if inner is not None else ""
    if inner is None or not seen or len(network.users[part]) != 1 or part in network.results or not _fits(network, inner, seen):
        return ""
    layout = network.layouts[seen]
    if layout.base != source or seen == source or squeezed(layout) != squeezed(region(tuple(network.spec(source).shape), cuts)):
        return ""
    if _reads(network, [inner.args[1:], list(inner.kwargs.values())], source):
        return ""
    return part if _come_first(network, network.readers(source) - {part, node.name}, part, place) else ""


def _fits(network: Values, node: Node, source: str) -> bool:
    if network.base(source) in network.last or node.name in network.last or len(node.outputs) != 1:
        return False
    mine, theirs = node.outputs[0], network.spec(source)
    return (tuple(mine.shape), mine.dtype) == (tuple(theirs.shape), theirs.dtype)


def _reads(network: Values, arguments: Any, source: str) -> bool:
    return any(network.base(name) == source for name in refs(arguments))


def _come_first(network: Values, readers: set[str], name: str, place: dict[str, int]) -> bool:
    return all(place[one] < place[name] and _fresh(network.nodes[one]) for one in readers)


def _scatters_part(node: Node) -> bool:
    return node.op == REGION or node.op.split(".")[1] in PARTS


def _fresh(node: Node) -> bool:
    return node.op.split(".")[1] not in ALIASES if "." in node.op else True


def _whole(network: Values, name: str, root: str) -> bool:
    return network.layouts[name].contiguous and tuple(network.spec(name).shape) == tuple(network.spec(root).shape)


def _adds(network: Values, node: Node) -> bool:
    name = node.op.split(".")[1]
    if _scatters_part(node):
        return network.base(node.args[1]["ref"]) == network.base(node.args[0]["ref"])
    return name in SUMS or name == "index_put" and len(node.args) > 3 and bool(node.args[3])


def _written(network: Values, node: Node) -> int:
    """Returns the largest number of elements that the operator can change."""
    name, shape = node.op.split(".")[1], tuple(node.outputs[0].shape)
    whole = math.prod(shape)
    if _scatters_part(node):
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


__all__ = ["Overwrite", "final_values", "old_readers", "overwriting"]
