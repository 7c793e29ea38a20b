"""Computes on all elements what forward computes only on those that a mask selects (`y[mask] = f(x[mask])`, `f(x[mask]).mean()`). How many elements
a mask selects depends on data, so a graph has no size for them; the size of the whole tensor is constant.

Only operators that process each element independently and raise no errors are replaced in this way, because the other elements may hold any value.
"""

# sandboxed: changes graphs of the models that tasks define

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Graph, Node

aten = torch.ops.aten
# Pointwise operators that lack the tag: they copy, cast or select.
ALSO_POINTWISE = {"to.dtype", "_to_copy.default", "clone.default", "detach.default", "where.ScalarSelf", "where.ScalarOther", "where.Scalar"}
RAISING = ("div", "floor_divide", "remainder", "fmod", "__")  # may raise an error for a divisor of 0, if it is an integer
LOSSES = {"mse_loss.default", "l1_loss.default", "soft_margin_loss.default", "smooth_l1_loss.default", "huber_loss.default"}
MEAN = 1  # number of this reduction in calls of PyTorch's operators
IGNORED = -100  # default class that cross_entropy ignores
NARROW = (torch.float16, torch.bfloat16)


def unmasked(exported: torch.export.ExportedProgram) -> None:
    """Replaces, in place, the computations of masked elements whose results have a constant size."""
    graph = exported.graph
    regions = _Regions(graph)
    if not regions.masks:
        return
    for node in list(graph.nodes):
        if (made := regions.ended(node)) is not None:
            node.replace_all_uses_with(made)
            name = node.name
            graph.erase_node(node)
            made._rename(name)  # the signature refers to results by name
    _swept(graph, regions.masks)
    graph.lint()
    exported.graph_module.recompile()


class _Regions:
    """The values of one graph that have one row per selected element: those that a mask selects, and those computed only from them."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.masks: dict[Node, Node] = {}  # value -> its mask
        self.made: dict[Node, Node] = {}  # value -> its counterpart for all elements
        self.place = {node: at for at, node in enumerate(graph.nodes)}
        self.changes = [at for node, at in self.place.items() if _changes(node)]
        for node in graph.nodes:
            if (mask := _selected(node)) is not None:
                self.masks[node] = next((known for known in self.masks.values() if self._equal(known, mask)), mask)
                continue
            found = {self.masks[one] for one in node.all_input_nodes if one in self.masks}
            if len(found) == 1 and self._each_alone(node):
                self.masks[node] = found.pop()

    def _each_alone(self, node: Node) -> bool:
        """Returns whether an operator computes each element of its result from one element of each argument, without errors."""
        target: Any = self._pure(node)
        if not isinstance(target, torch._ops.OpOverload) or target._schema.is_mutable or not isinstance(node.meta.get("val"), torch.Tensor):
            return False
        if torch.Tag.nondeterministic_seeded in target.tags or not (torch.Tag.pointwise in target.tags or _name(node) in ALSO_POINTWISE):
            return False
        if _name(node).startswith(RAISING) and not node.meta["val"].is_floating_point():
            return False
        rest = node.meta["val"].dim() - 1  # number of axes after the axis of the selected elements
        others = [one.meta["val"] for one in node.all_input_nodes if one not in self.masks]
        inner = [one.meta["val"].dim() - 1 for one in node.all_input_nodes if one in self.masks]
        return all(isinstance(one, torch.Tensor) and one.dim() <= rest for one in others) and all(one == rest for one in inner)

    def _pure(self, node: Node) -> Any:
        """Returns a node's operator, or the operator's pure form if it modifies, in place, selected elements that no other node reads."""
        target: Any = node.target
        name = getattr(getattr(target, "overloadpacket", None), "__name__", "")
        value: Any = node.args[0] if node.args else None
        if not name.endswith("_") or name.endswith("__") or value not in self.masks:
            return target
        own = _selected(value) is not None or _pointwise(value)  # does not use another value's memory
        if not own or sum(not _of_size(user) for user in value.users) != 1:
            return target
        return getattr(getattr(aten, name[:-1], None), target._overloadname, target)

    def whole(self, node: Node) -> Node:
        """Returns the counterpart of a value for all elements."""
        if node not in self.made:
            with self.graph.inserting_after(node):
                if _selected(node) is not None:  # copied, because its memory may change before the copy is read
                    self.made[node] = self._new(node, aten.clone.default, (node.args[0],))
                else:
                    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), self._whole_or_own)
                    with self.graph.inserting_after(node):
                        self.made[node] = self._new(node, self._pure(node), args, kwargs)
        return self.made[node]

    def _whole_or_own(self, node: Node) -> Node:
        return self.whole(node) if node in self.masks else node

    def ended(self, node: Node) -> Node | None:
        """Returns the counterpart of an operator whose result has a constant size although it reads selected elements, or None."""
        name = _name(node)
        with self.graph.inserting_before(node):
            if name in ("index_put.default", "index_put_.default"):
                return self._put(node)
            if name in ("sum.default", "mean.default") and not node.kwargs and node.args[0] in self.masks:
                value: Any = node.args[0]
                return self._reduced(node, self.whole(value), self.masks[value], name == "mean.default")
            if name in LOSSES and not node.kwargs:  # the arguments are the input, the target, the reduction and any others
                reduction: Any = node.args[2] if len(node.args) > 2 else MEAN
                sides = [self._side(side) for side in node.args[:2]]
                if reduction != 0 and all(side in self.masks for side in sides) and self.masks[sides[0]] is self.masks[sides[1]]:
                    whole = self._new(node, node.target, (*map(self.whole, sides), 0, *node.args[3:]))
                    return self._reduced(node, whole, self.masks[sides[0]], bool(reduction == MEAN))
            if name == "cross_entropy_loss.default" and not node.kwargs:
                return self._classified(node)
        return None

    def _classified(self, node: Node) -> Node | None:
        """Computes the loss for all rows, but ignores the classes of rows that are not selected."""
        given: list[Any] = [*node.args, *(None, MEAN, IGNORED)[len(node.args) - 2 :]]
        logits, classes, weight, reduction, ignored, *more = given
        both = all(one in self.masks and one.meta["val"].dim() == rank for one, rank in ((logits, 2), (classes, 1)))
        if not both or reduction == 0 or self.masks[logits] is not self.masks[classes]:
            return None
        mask = self._new(node, aten.reshape.default, (self.masks[logits], [-1]))
        every = self._new(node, aten.reshape.default, (self.whole(logits), [-1, logits.meta["val"].shape[1]]))
        chosen = self._new(node, aten.reshape.default, (self.whole(classes), [-1]))
        chosen = self._new(node, aten.masked_fill.Scalar, (chosen, self._new(node, aten.logical_not.default, (mask,)), ignored))
        return self._new(node, node.target, (every, chosen, weight, reduction, ignored, *more))

    def _side(self, node: Any) -> Any:
        """Looks through the broadcasting of two arguments that have equal sizes."""
        if getattr(node, "target", None) is not operator.getitem or _name(node.args[0]) != "broadcast_tensors.default":
            return node
        given = node.args[0].args[0]
        return given[node.args[1]] if len({one.meta["val"].dim() for one in given}) == 1 else node

    def _put(self, node: Node) -> Node | None:
        target, places, value, *more = node.args
        if value not in self.masks or any(more) or node.kwargs or len(places) != 1:  # type: ignore[arg-type]  # only nodes are keys
            return None
        mask = self.masks[value]  # type: ignore[index]  # a node, as found
        if not self._equal(places[0], mask):  # type: ignore[index,arg-type]  # an index of one place
            return None
        whole = self.whole(value)  # type: ignore[arg-type]  # a node, as found
        if whole.meta["val"].shape != target.meta["val"].shape:  # type: ignore[union-attr]  # what is written to is a node
            return None
        chosen = self._new(node, aten.where.self, (self._beside(node, mask, whole), whole, target))
        return chosen if node.target is aten.index_put.default else self._new(node, aten.copy_.default, (target, chosen))

    def _equal(self, one: Node, other: Node) -> bool:
        """Returns whether two masks are computed from the same values, with no changes to them in between."""
        first, last = sorted((self.place[one], self.place[other]))
        return one is other or _made_of(one) == _made_of(other) and not any(first <= at <= last for at in self.changes)

    def _reduced(self, node: Node, whole: Node, mask: Node, mean: bool) -> Node:
        dtype = node.meta["val"].dtype
        if dtype in NARROW:
            whole = self._new(node, aten._to_copy.default, (whole,), {"dtype": torch.float32})
        beside = self._beside(node, mask, whole)
        zero = self._new(node, aten.zeros_like.default, (whole,))
        result = self._new(node, aten.sum.default, (self._new(node, aten.where.self, (beside, whole, zero)),))
        if mean:
            more = whole.meta["val"].numel() // max(mask.meta["val"].numel(), 1)  # elements in each selected row
            count = self._new(node, aten.sum.default, (mask,))
            if more != 1:
                count = self._new(node, aten.mul.Tensor, (count, more))
            result = self._new(node, aten.div.Tensor, (result, count))
        return result if dtype not in NARROW else self._new(node, aten._to_copy.default, (result,), {"dtype": dtype})

    def _beside(self, node: Node, mask: Node, whole: Node) -> Node:
        """Adds axes to a mask until it has as many as a value."""
        for _ in range(whole.meta["val"].dim() - mask.meta["val"].dim()):
            mask = self._new(node, aten.unsqueeze.default, (mask, -1))
        return mask

    def _new(self, like: Node, target: Any, args: Any, kwargs: Any = None) -> Node:
        made = self.graph.call_function(target, args, kwargs or {})
        made.meta = {key: value for key, value in like.meta.items() if key not in ("val", "tensor_meta", "unbacked_bindings")}
        values, words = torch.fx.map_arg((args, kwargs or {}), lambda one: one.meta["val"])
        mode = next(one.fake_mode for one in torch.utils._pytree.tree_leaves((values, words)) if hasattr(one, "fake_mode"))
        with mode:
            made.meta["val"] = target(*values, **words)
        return made


def _name(node: Node) -> str:
    return str(node.target).removeprefix("aten.")


def _pointwise(node: Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and torch.Tag.pointwise in node.target.tags


def _changes(node: Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def _made_of(mask: Node) -> Any:
    """Returns the operator and the arguments of a mask, which are equal for `x[~m]` and a later `y[~m]`."""
    return (mask.target, mask.args, tuple(mask.kwargs.items())) if mask.op == "call_function" else mask


def _selected(node: Node) -> Node | None:
    """Returns the mask by which a node selects elements, or None."""
    if node.op != "call_function" or node.target is not aten.index.Tensor:
        return None
    places: Any = node.args[1]
    mask = places[0] if len(places) == 1 else None
    return mask if mask is not None and mask.meta["val"].dtype is torch.bool else None


def _swept(graph: Graph, masks: dict[Node, Node]) -> None:
    """Removes values of selected elements that are no longer read except for their size, about which the exporter makes assertions."""
    for node in reversed(list(graph.nodes)):
        if node not in masks:
            continue
        if all(map(_of_size, node.users)):
            for user in list(node.users):
                _erase(graph, user)
            graph.erase_node(node)


def _of_size(node: Node) -> bool:
    """Returns whether a node is read only by assertions about a size."""
    if _name(node) in ("_assert_scalar.default", "sym_constrain_range_for_size.default", "sym_constrain_range.default"):
        return True
    symbolic = isinstance(node.meta.get("val"), (torch.SymInt, torch.SymBool, torch.SymFloat))
    return symbolic and all(map(_of_size, node.users)) or _name(node) == "broadcast_tensors.default" and not any(one.users for one in node.users)


def _erase(graph: Graph, node: Node) -> None:
    for user in list(node.users):
        _erase(graph, user)
    if node in graph.find_nodes(op=node.op, target=node.target):
        graph.erase_node(node)
