"""Joins products of all positions of a tensor with the same weights into one product.

A loop over steps multiplies the input of each step by the same weights: `linear(x[t], weights)`. These products do not depend on each other, so
`linear(x, weights)[t]` needs one product instead of one per step.
"""

from __future__ import annotations

from typing import Any

from compiler.graph.values import new_node, plain, refs
from verifier.graph import Node
from verifier.task import TensorSpec

LEAST = 4  # positions
SLICE = "aten.slice.Tensor"
PRODUCTS = {"aten.linear.default": "aten.linear.default", "aten.mm.default": "aten.matmul.default", "aten.matmul.default": "aten.matmul.default"}


def together(nodes: list[Node], specs: dict[str, TensorSpec]) -> list[Node]:
    """Returns the operators with such products joined. `specs` covers every value and is extended by the new values."""
    by_name = {node.name: node for node in nodes}
    groups: dict[Any, list[tuple[int, Node]]] = {}
    for node in nodes:
        found = _position(node, by_name, specs) if node.op in PRODUCTS and not node.kwargs else None
        if found is not None:
            source, axis, at = found
            groups.setdefault((node.op, source, axis, str(node.args[1:])), []).append((at, node))
    after: dict[int, list[Node]] = {}  # position -> the joined products that follow the operator there
    instead: dict[str, Node] = {}
    place = {node.name: at for at, node in enumerate(nodes)}
    for (op, source, axis, _), members in groups.items():
        size = specs[source].shape[axis]
        first = members[0][1]
        name = f"{first.name}_together"
        if size < LEAST or sorted(at for at, _ in members) != list(range(size)) or name in specs:
            continue
        specs[name] = TensorSpec(shape=(*specs[source].shape[:-1], first.outputs[0].shape[-1]), dtype=first.outputs[0].dtype)
        args = [{"ref": source}, *first.args[1:]]
        known = max((place[one] for one in refs(args) if one in place), default=-1)
        after.setdefault(known, []).append(new_node(first, name, PRODUCTS[op], args, specs[name]))
        for at, node in members:
            instead[node.name] = node.model_copy(update={"op": "aten.select.int", "args": [{"ref": name}, axis, at]})
    found = list(after.get(-1, []))
    for at, node in enumerate(nodes):
        found += [instead.get(node.name, node), *after.get(at, [])]
    return found


def _position(node: Node, by_name: dict[str, Node], specs: dict[str, TensorSpec]) -> tuple[str, int, int] | None:
    """Returns (tensor, axis, index) if the product's rows are one position of a tensor along an axis other than its last."""
    part, weight = (one.get("ref") if isinstance(one, dict) else None for one in node.args[:2])
    maker = by_name.get(part or "")
    if maker is None or weight is None or len(specs[weight].shape) != 2:
        return None
    if maker.op == "aten.select.int":
        source, axis, at = maker.args[0]["ref"], plain(maker.args[1]), plain(maker.args[2])
    elif maker.op in ("aten.squeeze.dims", "aten.squeeze.dim") and (cut := by_name.get(maker.args[0]["ref"])) is not None and cut.op == SLICE:
        source, axis, at = cut.args[0]["ref"], plain(cut.args[1]), plain(cut.args[2])
        dropped = maker.args[1] if isinstance(maker.args[1], list) else [maker.args[1]]
        if cut.outputs[0].shape[axis] != 1 or [plain(one) % len(specs[source].shape) for one in dropped] != [axis % len(specs[source].shape)]:
            return None
    else:
        return None
    shape = specs[source].shape
    axis %= len(shape)
    if axis == len(shape) - 1 or len(shape) < 3 or not isinstance(at, int):
        return None
    return source, axis, at % shape[axis]
