"""A captured graph prepared for compilation: users and view layouts are determined, dead nodes are removed, and losses over classes are split into
per-row losses and their mean."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

from compiler.graph import channels_last
from compiler.graph.algebra import simplify
from compiler.graph.averaged import OF_WEIGHTS, averages
from compiler.graph.common import common
from compiler.graph.complexes import as_reals
from compiler.graph.deciding import deciding
from compiler.graph.ir import SIZES
from compiler.graph.layout import SPLITS, VIEWS, Layout, dense, split, view
from compiler.graph.loops import roll
from compiler.graph.of_weights import made_once
from compiler.graph.overwriting import overwriting
from compiler.graph.placing import widened
from compiler.graph.regions import regions
from compiler.graph.rewrites import rewrite
from compiler.graph.segments import spelled_out
from compiler.graph.steady import steady
from compiler.graph.together import filled_whole, together
from compiler.graph.unshuffled import unshuffle
from compiler.graph.values import new_node, plain, refs
from verifier.draws import draws
from verifier.graph import ASSERTION, Graph, GraphInput, Node
from verifier.task import TensorSpec


def count(spec: TensorSpec) -> int:
    return math.prod(spec.shape)


def size_bytes(spec: TensorSpec) -> int:
    return count(spec) * SIZES.get(spec.dtype, 8)


def _draws(node: Node) -> bool:
    return draws(node.op, node.args, node.kwargs)


class Network:
    """The nodes by name, in topological order, with the known properties of each value."""

    def __init__(self, graph: Graph, images_last: bool = False):
        self.graph = graph
        self.inputs: dict[str, GraphInput] = {entry.name: entry for entry in graph.inputs}
        self.results = [name for leaf in graph.outputs for name in refs(leaf)]
        self.results += [*graph.mutations.values(), *graph.mutated_inputs.values()]
        specs = {node.name: node.outputs[0] for node in graph.nodes if node.outputs} | {
            entry.name: entry.spec for entry in graph.inputs if entry.spec
        }
        nodes = common(rewrite(roll(graph.nodes, specs, set(self.results)), specs, set(self.results)), set(self.results))
        nodes = together(nodes, self._specs(nodes))
        nodes = filled_whole(nodes, self._specs(nodes), set(self.results))
        nodes, self.notes = simplify(nodes, set(self.results), {entry.name: entry.spec for entry in graph.inputs if entry.spec})
        self.steady = steady(graph)  # parameters and buffers from which values may be computed once
        nodes, once = made_once(nodes, self._specs(nodes), self.steady, self.results)
        nodes, further = averages(nodes, set(self.results), self._specs(nodes), self.steady)
        nodes, steps = unshuffle(nodes, self._specs(nodes), self.steady)
        self.notes += [*once, *further, *steps]
        nodes = push_slices([constant(piece) for node in nodes for piece in self._cut_loss(node)], set(self.results))
        changing = {*graph.mutated_inputs, *(entry.name for entry in graph.inputs if entry.target in graph.mutations)}
        nodes = regions(nodes, self._specs(nodes), set(self.results), changing)
        nodes = filled(as_reals(nodes, self._specs(nodes), set(self.results)), set(self.results))
        nodes = spelled_out(nodes, self._specs(nodes))
        nodes = widened(nodes, self._specs(nodes))
        self.nodes: dict[str, Node] = self._alive(nodes)
        drawing = [node.name for node in self.nodes.values() if _draws(node)]
        self.drawn_before = dict(zip(drawing[1:], drawing, strict=False))  # operator that draws random numbers -> the one that draws before it
        self.drawn_after = {before: name for name, before in self.drawn_before.items()}
        self.users: dict[str, list[str]] = {name: [] for name in [*self.inputs, *self.nodes]}
        for node in self.nodes.values():
            for name in dict.fromkeys(refs([node.args, list(node.kwargs.values())])):
                self.users[name].append(node.name)
        self.deciding = deciding(self)  # values that kernels round as if they were stored
        self.last = channels_last.values(self) if images_last else set()  # values stored in channels-last layout
        self.layouts: dict[str, Layout] = {}
        for entry in graph.inputs:
            if entry.spec is not None:
                self.layouts[entry.name] = dense(entry.name, entry.spec.shape)
        for node in self.nodes.values():
            if node.outputs:
                self.layouts[node.name] = self._layout(node)
        self.overwrites = overwriting(self)  # operator -> the memory that it can write in place

    def _specs(self, nodes: list[Node]) -> dict[str, TensorSpec]:
        return {node.name: node.outputs[0] for node in nodes if node.outputs} | {e.name: e.spec for e in self.graph.inputs if e.spec}

    def of_weights(self, name: str) -> str:
        """Returns Python code over {0} for a value that is computed once from weights alone, or "" for any other value."""
        node = self.nodes.get(name)
        return node.kwargs["code"] if node is not None and node.op == OF_WEIGHTS else ""

    def made_once(self, name: str) -> bool:
        """Returns whether the value is not a view and is either an unchanging weight or computed only from such weights."""
        own = name in self.steady or name in self.inputs and self.inputs[name].kind == "constant"
        return self.layouts[name].base == name and (own or bool(self.of_weights(name)))

    def _alive(self, nodes: list[Node]) -> dict[str, Node]:
        wanted = set(self.results)
        kept = []
        drawn = False
        for node in reversed(nodes):
            # removing a draw would change the numbers that later operators draw
            if node.name in wanted or node.op == ASSERTION or drawn and _draws(node):
                kept.append(node)
                drawn |= _draws(node)
                wanted.update(refs([node.args, list(node.kwargs.values())]))
        return {node.name: node for node in reversed(kept)}

    def _layout(self, node: Node) -> Layout:
        shape = node.outputs[0].shape
        source = self.layouts.get(node.args[0]["ref"]) if node.args and isinstance(node.args[0], dict) and "ref" in node.args[0] else None
        if node.op == "getitem" and (maker := self.nodes.get(node.args[0]["ref"])) is not None and maker.op in SPLITS:
            found = split(maker.op, self.layouts[maker.args[0]["ref"]], maker.args[1:], node.args[1], shape)
            return found or dense(node.name, shape)
        if node.op in VIEWS and source is not None:
            return view(node.op, source, [plain(a) for a in node.args[1:]], shape) or dense(node.name, shape)
        return channels_last.layout(node.name, tuple(shape)) if node.name in self.last else dense(node.name, shape)

    def spec(self, name: str) -> TensorSpec:
        entry = self.inputs.get(name)
        spec = entry.spec if entry is not None else self.nodes[name].outputs[0]
        if spec is None:
            raise KeyError(name)
        return spec

    def is_view(self, name: str) -> bool:
        """Returns whether the value shares the memory of another value and therefore costs nothing."""
        layout = self.layouts.get(name)
        return layout is not None and layout.base != name

    def base(self, name: str) -> str:
        return self.layouts[name].base if name in self.layouts else name

    def readers(self, name: str) -> set[str]:
        """Returns the nodes that read the memory of `name` directly or through views."""
        found: set[str] = set()
        for user in self.users[name]:
            if self.is_view(user) or self.nodes[user].op in SPLITS:
                found |= self.readers(user)
            else:
                found.add(user)
        return found

    def followers(self, name: str) -> set[str]:
        """Returns the nodes that must run after `name`: those that read it, and the next one that draws random numbers."""
        found = self.readers(name)
        return found | {self.drawn_after[name]} if name in self.drawn_after else found

    def recut(self, name: str) -> bool:
        """Returns whether a view of `name` merges or splits axes, which requires the memory to be in the order of the axes."""
        views = [user for user in self.users[name] if self.is_view(user) or self.nodes[user].op in SPLITS]
        return any(self.recut(user) or self.nodes[user].op in RECUTS and self._long(user) != self._long(name) for user in views)

    def _long(self, name: str) -> list[int]:
        return [size for size in self.spec(name).shape if size != 1]

    def escapes(self, name: str) -> bool:
        """Returns whether forward returns `name` or a view of it, as an output or as new state."""
        if name in self.results:
            return True
        return any(self.escapes(user) for user in self.users[name] if self.is_view(user) or self.nodes[user].op in SPLITS)

    def _cut_loss(self, node: Node) -> list[Node]:
        """Splits a cross entropy over (rows, classes) with class indices into per-row losses and the mean or sum of the rows that count."""
        if node.op != "aten.cross_entropy_loss.default":
            return [node]
        args = [*node.args, *[None] * (6 - len(node.args))]
        logits, target, weight = args[0], args[1], args[2]
        reduction = 1 if args[3] is None else args[3]
        ignored = -100 if args[4] is None else args[4]
        specs = {n.name: n.outputs[0] for n in self.graph.nodes if n.outputs} | {i.name: i.spec for i in self.graph.inputs if i.spec}
        shape, index = specs[logits["ref"]].shape, specs[target["ref"]]
        if weight is not None or args[5] or len(shape) != 2 or index.dtype != "int64" or index.shape != shape[:1]:
            return [node]
        name, rows = node.name, (shape[0],)

        def make(suffix: str, op: str, args: list[Any], spec: TensorSpec) -> Node:
            return new_node(node, name + suffix, op, args, spec)

        row_spec, scalar = (TensorSpec(shape=size, dtype=node.outputs[0].dtype) for size in (rows, ()))
        if reduction == 0:
            return [make("", "stitch.cross_entropy_rows", [logits, target, ignored], row_spec)]
        losses = make("_rows", "stitch.cross_entropy_rows", [logits, target, ignored], row_spec)
        if reduction == 2:
            return [losses, make("", "aten.sum.default", [{"ref": losses.name}], scalar)]
        return [losses, make("", "stitch.mean_counted", [{"ref": losses.name}, target, ignored], scalar)]


RECUTS = frozenset(f"aten.{name}" for name in ("view.default", "_unsafe_view.default", "reshape.default", "flatten.using_ints", "unflatten.int"))
FILLS = {"zeros_like": 0, "ones_like": 1, "new_zeros": 0, "new_ones": 1, "zeros": 0, "ones": 1}


def constant(node: Node) -> Node:
    """Makes a filled tensor independent of the tensor that provided its shape."""
    name = node.op.split(".")[1] if "." in node.op else ""
    if name in FILLS:
        value = FILLS[name]
    elif name == "full_like":
        value = node.args[1]
    elif name == "new_full":
        value = node.args[2]
    else:
        return node
    spec = node.outputs[0]
    return node.model_copy(
        update={"op": "aten.full.default", "args": [list(spec.shape), value], "kwargs": {"dtype": f"torch.{spec.dtype}", "device": "input"}}
    )


def filled(nodes: list[Node], results: set[str]) -> list[Node]:
    """Replaces views of filled tensors with smaller filled tensors, so that the whole tensor is not needed."""
    made: dict[str, Node] = {}
    for node in nodes:
        maker = made.get(node.args[0]["ref"]) if node.op in VIEWS and isinstance(node.args[0], dict) and node.name not in results else None
        if maker is not None and maker.op == "aten.full.default":
            node = node.model_copy(update={"op": maker.op, "args": [list(node.outputs[0].shape), maker.args[1]], "kwargs": dict(maker.kwargs)})
        made[node.name] = node
    return list(made.values())


SLICEABLE = frozenset(
    f"aten.{name}" for name in ("add.Tensor", "sub.Tensor", "mul.Tensor", "div.Tensor", "relu.default", "sigmoid.default", "tanh.default")
)


def push_slices(nodes: list[Node], results: Collection[str]) -> list[Node]:
    """Turns the pieces of a sum that is read only in pieces into sums of pieces, which can be fused into the kernels that read them. `results` are
    returned whole."""
    users: dict[str, list[Node]] = {}
    for node in nodes:
        for name in dict.fromkeys(refs([node.args, list(node.kwargs.values())])):
            users.setdefault(name, []).append(node)
    specs = {node.name: node.outputs[0] for node in nodes if node.outputs}
    result: list[Node] = []
    moved: dict[str, Node] = {}  # split -> the operator whose result it splits, which it now precedes
    for node in nodes:
        readers = users.get(node.name, [])
        tensors = [a["ref"] for a in node.args if isinstance(a, dict) and "ref" in a]
        whole = all(name in specs and specs[name].shape == node.outputs[0].shape for name in tensors) if node.outputs else False
        cut = bool(readers) and all(r.op in SPLITS and r.args[0] == {"ref": node.name} for r in readers)
        if node.op in SLICEABLE and whole and cut and node.name not in results:
            moved.update({r.name: node for r in readers})
            continue
        if node.name in moved:
            for at, name in enumerate(_tensors(moved[node.name])):
                result.append(node.model_copy(update={"name": f"{node.name}_of_{at}", "args": [{"ref": name}, *node.args[1:]]}))
            continue
        if node.op == "getitem" and node.args[0]["ref"] in moved:
            split, operand = node.args[0]["ref"], moved[node.args[0]["ref"]]
            pieces: dict[str, str] = {}
            for at, name in enumerate(_tensors(operand)):
                pieces[name] = f"{node.name}_of_{at}"
                result.append(node.model_copy(update={"name": pieces[name], "args": [{"ref": f"{split}_of_{at}"}, node.args[1]]}))
            args = [{"ref": pieces[a["ref"]]} if isinstance(a, dict) and "ref" in a else a for a in operand.args]
            result.append(
                operand.model_copy(update={"name": node.name, "args": args, "outputs": [node.outputs[0].model_copy(update={"stride": None})]})
            )
            specs[node.name] = node.outputs[0]
            continue
        result.append(node)
    return result


def _tensors(node: Node) -> list[str]:
    return list(dict.fromkeys(a["ref"] for a in node.args if isinstance(a, dict) and "ref" in a))


__all__ = ["Network", "count", "plain", "push_slices", "refs", "size_bytes"]
