"""Represents assignments to a region of a tensor sliced along several axes (`out[:, :, :m, :m] = y`) as one operator instead of one per axis.

The capture represents such an assignment as nested slice scatters, each of which reads and writes its whole tensor. As a single operator, the
assignment is an elementwise choice between the new part and the previous contents, and a kernel can fuse several consecutive assignments.
"""

from __future__ import annotations

from collections.abc import Collection

from compiler.graph.values import plain, refs
from verifier.graph import Node
from verifier.task import TensorSpec

REGION = "stitch.set_region"  # arguments: the whole tensor, the part, and [axis, start, count] for each sliced axis


def regions(nodes: list[Node], specs: dict[str, TensorSpec], results: Collection[str]) -> list[Node]:
    users: dict[str, int] = {}
    for node in nodes:
        for name in dict.fromkeys(refs([node.args, list(node.kwargs.values())])):
            users[name] = users.get(name, 0) + 1
    found: dict[str, Node] = {}
    for node in nodes:
        cut = _cut(node, specs)
        inner = found.get(node.args[1]["ref"]) if cut is not None else None
        if cut is not None and inner is not None and users[inner.name] == 1 and inner.name not in results:
            within = _cut(inner, specs)
            further = inner.args[2] if inner.op == REGION else [[*within]] if within is not None else []
            view = found.get(inner.args[0]["ref"]) if further else None
            if view is not None and view.op == "aten.slice.Tensor" and view.args[0] == node.args[0] and _range(view, specs) == cut:
                node = node.model_copy(update={"op": REGION, "args": [node.args[0], inner.args[1], [[*cut], *further]], "kwargs": {}})
        found[node.name] = node
    return list(found.values())


def _cut(node: Node, specs: dict[str, TensorSpec]) -> tuple[int, int, int] | None:
    """Returns the axis, start and count of a scatter into a slice with step 1."""
    return _range(node, specs) if node.op == "aten.slice_scatter.default" else None


def _range(node: Node, specs: dict[str, TensorSpec]) -> tuple[int, int, int] | None:
    """Returns the axis, start and count of a slice or of a scatter into a slice, or None if the step of the slice is not 1."""
    args = [*(plain(one) for one in node.args[2 if "scatter" in node.op else 1 :]), None, None, None, None]
    axis, start, end, step = args[0] or 0, args[1], args[2], args[3] or 1
    shape = specs[node.args[0]["ref"]].shape
    if step != 1 or not shape:
        return None
    size = shape[axis % len(shape)]
    first, last = (min(max(at + size if at < 0 else at, 0), size) for at in (start or 0, size if end is None else end))
    return axis % len(shape), first, max(last - first, 0)
