"""Represents assignments to a region of a tensor (`out[:, :, :m, 3] = y`) as one operator instead of one per axis.

The capture represents such an assignment as nested scatters into slices, each of which reads and writes its whole tensor. It represents a scatter to
one position of an axis as a choice by comparing a tensor of positions with that position. As a single operator, the assignment is an elementwise
choice between the new part and the previous contents. A kernel can fuse several consecutive assignments, or the program writes the part in place.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from compiler.graph.layout import VIEWS, Layout, dense, view
from compiler.graph.positions import position_write
from compiler.graph.values import new_node, plain, refs
from verifier.graph import Node
from verifier.task import TensorSpec

REGION = "stitch.set_region"  # arguments: the whole tensor, the part, and [axis, start, count] for each sliced axis
Cut = list[int]  # axis, start and count
Specs = Mapping[str, TensorSpec]
WRITES = frozenset(f"aten.{name}" for name in ("index_put.default", "index_add.default", "scatter.src", "scatter.value", "scatter_add.default"))


def regions(nodes: list[Node], specs: Specs, results: Collection[str], changing: Collection[str] = ()) -> list[Node]:
    """Returns the nodes after joining scatters. `changing` holds the inputs and state that forward changes. A scatter to one position becomes a
    region only if it changes one of these, because then it may happen in place. Otherwise, kernels compute it as it was captured."""
    users: dict[str, int] = {}
    for node in nodes:
        for name in dict.fromkeys(refs([node.args, list(node.kwargs.values())])):
            users[name] = users.get(name, 0) + 1
    found: dict[str, Node] = {}
    written = set(changing)  # values whose memory may be that of the changing tensors, among them views
    for node in nodes:
        if node.op == "aten.where.self" and isinstance(node.args[2], dict) and node.args[2].get("ref") in written:
            node = _selected(node, found, specs) or node
        made = [node]
        if cuts := cuts_of(node, specs):
            whole, part = node.args[0]["ref"], node.args[1]["ref"]
            if layout_within(part, whole, found, specs) == region(specs[whole].shape, cuts):  # the part is there already
                made = [new_node(node, node.name, "aten.alias.default", [node.args[0]], node.outputs[0])]
            elif users[part] == 1 and part not in results:
                made = _joined(node, cuts, found, specs, users, results) or made
        found.update({one.name: one for one in made})
        first = node.args[0] if node.args else None
        if isinstance(first, dict) and first.get("ref") in written and (cuts or node.op in VIEWS or node.op in WRITES):
            written.add(node.name)
    return list(found.values())


def cuts_of(node: Node, specs: Specs) -> list[Cut]:
    """Returns the region that a scatter into slices with step 1 replaces, or an empty list for any other operator."""
    if node.op == REGION:
        return [list(cut) for cut in node.args[2]]
    found = _range(node, specs) if node.op == "aten.slice_scatter.default" else None
    return [found] if found is not None else []


def region(shape: tuple[int, ...], cuts: list[Cut]) -> Layout:
    """Returns the layout of a region within a dense tensor with the given shape, without axes of size 1."""
    layout = dense("", tuple(shape))
    for axis, start, count in cuts:
        sizes = tuple(count if at == axis else size for at, size in enumerate(layout.shape))
        layout = Layout("", sizes, layout.strides, layout.offset + start * layout.strides[axis])
    return squeezed(layout)


def layout_within(name: str, whole: str, nodes: Mapping[str, Node], specs: Specs) -> Layout | None:
    """Returns the layout of a view within the dense tensor `whole`, without axes of size 1, or None if the value is not a view of that tensor."""
    steps = []
    while name != whole:
        node = nodes.get(name)
        if node is None or node.op not in VIEWS or not isinstance(node.args[0], dict):
            return None
        steps.append(node)
        name = node.args[0]["ref"]
    layout: Layout | None = dense("", tuple(specs[whole].shape))
    for node in reversed(steps):
        layout = view(node.op, layout, [plain(one) for one in node.args[1:]], tuple(node.outputs[0].shape)) if layout is not None else None
    return squeezed(layout) if layout is not None else None


def squeezed(layout: Layout) -> Layout:
    """Returns the layout without axes of size 1 and without the name of the tensor."""
    kept = [(size, stride) for size, stride in zip(layout.shape, layout.strides, strict=True) if size != 1]
    return Layout("", tuple(size for size, _ in kept), tuple(stride for _, stride in kept), layout.offset)


def _selected(node: Node, found: Mapping[str, Node], specs: Specs) -> Node | None:
    """Returns a write to one position of an axis as a region, or None if the operator is not such a write."""
    write = position_write(node, found, specs)
    if write is None:
        return None
    axis, at, part, whole = write
    ones = tuple(1 if a == axis else size for a, size in enumerate(node.outputs[0].shape))
    if tuple(specs[part].shape) != ones or specs[whole].dtype != node.outputs[0].dtype:
        return None
    return new_node(node, node.name, REGION, [{"ref": whole}, {"ref": part}, [[axis, at, 1]]], node.outputs[0])


def _joined(node: Node, cuts: list[Cut], found: Mapping[str, Node], specs: Specs, users: Mapping[str, int], results: Collection[str]) -> list[Node]:
    """Rewrites a scatter whose part is the same region of the same tensor after an inner scatter as one scatter into the inner region. Returns an
    empty list if the part is anything else."""
    whole, part = node.args[0]["ref"], node.args[1]["ref"]
    added = None  # the axis of size 1 that the outer scatter adds to the result of the inner one
    inner = found.get(part)
    if inner is not None and inner.op == "aten.unsqueeze.default":
        added = plain(inner.args[1]) % len(inner.outputs[0].shape)
        inner = found.get(inner.args[0]["ref"])
    within = cuts_of(inner, specs) if inner is not None else []
    if inner is None or not within or users[inner.name] != 1 or inner.name in results:
        return []
    seen = layout_within(inner.args[0]["ref"], whole, found, specs)
    if seen is None or seen != region(specs[whole].shape, cuts) or added is not None and cuts[-1][::2] != [added, 1]:
        return []
    part, made = inner.args[1], []
    if added is not None:
        within = [[axis + (axis >= added), start, count] for axis, start, count in within]
        shape = list(found[part["ref"]].outputs[0].shape if part["ref"] in found else specs[part["ref"]].shape)
        spec = TensorSpec(shape=(*shape[:added], 1, *shape[added:]), dtype=node.outputs[0].dtype)
        made = [new_node(node, f"{node.name}_part", "aten.unsqueeze.default", [part, added], spec)]
        part = {"ref": made[0].name}
    return [*made, new_node(node, node.name, REGION, [node.args[0], part, _merged([*cuts, *within])], node.outputs[0])]


def _merged(cuts: list[Cut]) -> list[Cut]:
    """Combines cuts along the same axis; later cuts count from the start of earlier ones."""
    found: dict[int, Cut] = {}
    for axis, start, count in cuts:
        found[axis] = [axis, found[axis][1] + start if axis in found else start, count]
    return list(found.values())


def _range(node: Node, specs: Specs) -> Cut | None:
    """Returns the axis, start and count of a scatter into a slice, or None if the step of the slice is not 1."""
    axis, start, end, step = [*(plain(one) for one in node.args[2:]), None, None, None, None][:4]
    shape = specs[node.args[0]["ref"]].shape
    if step not in (None, 1) or not shape:
        return None
    axis = (axis or 0) % len(shape)
    size = shape[axis]
    first, last = (min(max(at + size if at < 0 else at, 0), size) for at in (start or 0, size if end is None else end))
    return [axis, first, max(last - first, 0)]
