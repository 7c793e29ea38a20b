"""Joins operations that a loop over steps performs at each position of a tensor: products with the same weights, and writes.

A loop over steps multiplies the input of each step by the same weights: `linear(x[t], weights)`. These products do not depend on each other, so
`linear(x, weights)[t]` needs one product instead of one per step. If the inputs are the states of an earlier loop (the layer below), they are
stacked first. A loop that fills a tensor (`out[t] = h`) is captured as choices between the new part and all of the old contents, one per step; if the
steps fill all of it, it is the concatenation of the parts.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

from compiler.graph.positions import position_write
from compiler.graph.values import new_node, plain, refs, renamed
from verifier.graph import Node
from verifier.task import TensorSpec

LEAST = 4  # positions
MANY, SMALL = 8, 1 << 16  # of at least so many separate tensors with at most so many elements each, a stack is made
SLICE = "aten.slice.Tensor"
PRODUCTS = {"aten.linear.default": "aten.linear.default", "aten.mm.default": "aten.matmul.default", "aten.matmul.default": "aten.matmul.default"}


def together(nodes: list[Node], specs: dict[str, TensorSpec]) -> list[Node]:
    """Returns the operators with such products joined. `specs` covers every value and is extended by the new values."""
    nodes = _stacked(nodes, specs)
    by_name = {node.name: node for node in nodes}
    groups: dict[Any, list[tuple[int, Node]]] = {}
    for node in nodes:
        place_of = _position(node, by_name, specs) if node.op in PRODUCTS and not node.kwargs else None
        if place_of is not None:
            source, axis, at = place_of
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


def _stacked(nodes: list[Node], specs: dict[str, TensorSpec]) -> list[Node]:
    """Stacks separate tensors that products with the same weights read, if all are there before the first product. Later operators read positions of
    the stack."""
    by_name = {node.name: node for node in nodes}
    place = {node.name: at for at, node in enumerate(nodes)}
    groups: dict[Any, list[Node]] = {}
    for node in nodes:
        part = node.args[0].get("ref") if node.op in PRODUCTS and not node.kwargs and isinstance(node.args[0], dict) else None
        if part in by_name and len(specs[part].shape) == 2 and _position(node, by_name, specs) is None and math.prod(specs[part].shape) <= SMALL:
            groups.setdefault((node.op, str(node.args[1:]), tuple(specs[part].shape), specs[part].dtype), []).append(node)
    made: dict[int, list[Node]] = {}  # position -> the stack and its parts, which follow the operator there
    instead: dict[str, tuple[int, str]] = {}  # value -> where its stack is made, and the part that equals it
    for members in groups.values():
        sources = list(dict.fromkeys(node.args[0]["ref"] for node in members))
        last = max(place[one] for one in sources)
        name = f"{sources[0]}_stacked"
        if len(sources) < MANY or len(sources) < len(members) or last > place[members[0].name] or name in specs or instead.keys() & set(sources):
            continue
        shape, dtype, origin = tuple(specs[sources[0]].shape), specs[sources[0]].dtype, by_name[sources[-1]]
        one, whole = TensorSpec(shape=(1, *shape), dtype=dtype), TensorSpec(shape=(len(sources), *shape), dtype=dtype)
        rows = [new_node(origin, f"{name}_row_{at}", "aten.view.default", [{"ref": each}, list(one.shape)], one) for at, each in enumerate(sources)]
        cat = new_node(origin, name, "aten.cat.default", [[{"ref": row.name} for row in rows], 0], whole)
        cuts = [new_node(origin, f"{name}_{at}", "aten.select.int", [{"ref": name}, 0, at], specs[each]) for at, each in enumerate(sources)]
        made.setdefault(last, []).extend([*rows, cat, *cuts])
        instead |= {each: (last, cut.name) for each, cut in zip(sources, cuts, strict=True)}
        specs.update({node.name: node.outputs[0] for node in (*rows, cat, *cuts)})
    found = []
    for at, node in enumerate(nodes):
        read = {name: instead[name][1] for name in refs([node.args, list(node.kwargs.values())]) if name in instead and instead[name][0] < at}
        if read:
            node = node.model_copy(update={"args": renamed(node.args, read), "kwargs": {key: renamed(v, read) for key, v in node.kwargs.items()}})
        found += [node, *made.get(at, [])]
    return found


def filled_whole(nodes: list[Node], specs: dict[str, TensorSpec], results: Collection[str]) -> list[Node]:
    """Replaces a chain of writes to single positions that fills a whole tensor with the concatenation of the parts."""
    by_name = {node.name: node for node in nodes}
    users: dict[str, int] = {}  # value -> readers, apart from those that nothing needs
    for node in reversed(nodes):
        if node.name in results or node.name in users or not node.outputs:
            for name in dict.fromkeys(refs([node.args, list(node.kwargs.values())])):
                users[name] = users.get(name, 0) + 1
    writes = {node.name: found for node in nodes if (found := position_write(node, by_name, specs)) is not None}
    instead: dict[str, list[Node]] = {}
    for name, (axis, _, _, _) in writes.items():
        chain: list[str] = []
        at = name
        while at in writes and writes[at][0] == axis and (not chain or users[at] == 1 and at not in results):
            chain.append(at)
            at = writes[at][3]
        whole, size = specs[name], specs[name].shape[axis]
        parts = {writes[one][1]: writes[one][2] for one in reversed(chain)}  # a later write to the same position wins
        if size < LEAST or len(chain) < size or sorted(parts) != list(range(size)):
            continue
        made, shape = [], (*whole.shape[:axis], 1, *whole.shape[axis + 1 :])
        for position in range(size):
            part = f"{name}_part_{position}"
            specs[part] = TensorSpec(shape=shape, dtype=whole.dtype)
            made.append(new_node(by_name[name], part, "aten.view.default", [{"ref": parts[position]}, list(shape)], specs[part]))
        cat = [[{"ref": one.name} for one in made], axis]
        instead[name] = [*made, by_name[name].model_copy(update={"op": "aten.cat.default", "args": cat})]
    return [piece for node in nodes for piece in instead.get(node.name, [node])]


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
