"""Re-rolls recurrences: if a Python loop (or an export) has unrolled a recurrence into single steps, one operator over all steps replaces them.

    h = activation(linear(cat(x[t], h), weights))                     a cell written by hand
    h = activation(linear(h, weights) + linear(x, weights)[t])        nn.RNN as torch.export decomposes it

become `aten.rnn_tanh` or `aten.rnn_relu` over x, and operators that read a state now read the corresponding step of the result. If each state is
multiplied by the same weights and the products are concatenated at the end, they become one product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from compiler.graph.ir import FLOATS
from compiler.graph.layout import contiguous_strides
from compiler.graph.values import plain, refs
from verifier.graph import Node
from verifier.task import TensorSpec

LEAST_STEPS = 4
LINEAR, CAT = "aten.linear.default", "aten.cat.default"
ACTIVATIONS = {"aten.tanh.default": "tanh", "aten.relu.default": "relu"}


@dataclass
class Step:
    """One step: `state` = activation(...), computed from the state `before` and from position `index` of `source` along its first axis."""

    state: str
    before: str
    source: str
    index: int
    joined: bool  # whether x and the previous state are concatenated before the product
    key: tuple[Any, ...]  # the properties that all steps share: activation, weights, and the position of x in the concatenation


class Roller:
    def __init__(self, nodes: list[Node], specs: dict[str, TensorSpec], results: set[str]):
        self.nodes, self.specs, self.results = nodes, specs, results
        self.by_name = {node.name: node for node in nodes}
        self.users: dict[str, list[str]] = {}
        for node in nodes:
            for name in dict.fromkeys(refs([node.args, list(node.kwargs.values())])):
                self.users.setdefault(name, []).append(node.name)

    def rolled(self) -> list[Node]:
        steps = {step.state: step for node in self.nodes if (step := self.step(node)) is not None}
        chains = self.chains(steps)
        if not chains:
            return self.nodes
        before: dict[str, list[Node]] = {}  # node -> the nodes that are inserted before it
        instead: dict[str, Node] = {}
        position = {node.name: at for at, node in enumerate(self.nodes)}
        for chain in chains:
            made, states = self.recurrence(chain)
            needed = [position[name] for node in made for name in refs(node.args) if name in position]
            if max(needed, default=-1) >= position[chain[0].state]:
                continue  # an input of later steps is computed only after the first step
            before[chain[0].state] = made
            instead.update(states)
        nodes = [piece for node in self.nodes for piece in (*before.get(node.name, []), instead.get(node.name, node))]
        return gathered(nodes, self.specs)

    def step(self, node: Node) -> Step | None:
        """Returns the step if `node` is its activation."""
        kind = ACTIVATIONS.get(node.op)
        made = self.by_name.get(node.args[0]["ref"]) if kind else None
        if made is None or self.single(made.name) is None or node.outputs[0].dtype not in FLOATS:
            return None
        if made.op == LINEAR:
            joined = self.by_name.get(made.args[0]["ref"])
            if joined is None or joined.op != CAT or len(joined.args[0]) != 2 or self.single(joined.name) is None:
                return None
            rank = len(joined.outputs[0].shape)
            if rank != 2 or plain(joined.args[1] if len(joined.args) > 1 else 0) % rank != 1:
                return None
            for at in (0, 1):
                x, hidden = joined.args[0][at]["ref"], joined.args[0][1 - at]["ref"]
                found = self.piece(x)
                if found is not None and self.specs[hidden].shape == node.outputs[0].shape:
                    return Step(node.name, hidden, *found, True, (kind, str(made.args[1:]), at))
            return None
        if made.op != "aten.add.Tensor" or made.kwargs or any(not isinstance(a, dict) or "ref" not in a for a in made.args):
            return None
        for at in (0, 1):
            own, piece = self.by_name.get(made.args[at]["ref"]), self.piece(made.args[1 - at]["ref"])
            source = self.by_name.get(piece[0]) if piece else None
            if own is None or own.op != LINEAR or self.single(own.name) is None or source is None or source.op != LINEAR:
                continue
            if piece is not None and len(self.specs[source.args[0]["ref"]].shape) == 3:
                return Step(node.name, self.through(own.args[0]["ref"]), *piece, False, (kind, str(own.args[1:]), source.name))
        return None

    def single(self, name: str) -> str | None:
        """Returns the only user of a value, provided that forward does not return the value."""
        users = self.users.get(name, [])
        return users[0] if len(users) == 1 and name not in self.results else None

    def through(self, name: str) -> str:
        """Follows views that only insert or remove axes of size 1 to the underlying value."""
        node = self.by_name.get(name)
        while node is not None and node.op in ("aten.unsqueeze.default", "aten.squeeze.dims", "aten.squeeze.dim", "aten.alias.default"):
            name = node.args[0]["ref"]
            node = self.by_name.get(name)
        return name

    def piece(self, name: str) -> tuple[str, int] | None:
        """Returns (value, index along its first axis) if `name` is a single position of that value."""
        node = self.by_name.get(self.through(name))
        if node is None or len(node.args) < 3 or node.op not in ("aten.select.int", "aten.slice.Tensor"):
            return None
        shape = self.specs[node.args[0]["ref"]].shape
        axis, start = plain(node.args[1]) % len(shape), plain(node.args[2])
        if axis or len(shape) != 3 or not isinstance(start, int):
            return None
        if node.op == "aten.slice.Tensor" and (node.outputs[0].shape[0] != 1 or len(node.args) > 4):
            return None
        return node.args[0]["ref"], start % shape[0]

    def chains(self, steps: dict[str, Step]) -> list[list[Step]]:
        """Returns the sequences of consecutive steps that cover their input from the first to the last position."""
        found = []
        for step in steps.values():
            if step.index != 0:
                continue
            chain, after = [step], step
            while True:
                following = [s for s in steps.values() if s.before == after.state and s.key == step.key and s.source == step.source]
                if len(following) != 1 or following[0].index != len(chain):
                    break
                after = following[0]
                chain.append(after)
            if len(chain) == self.specs[step.source].shape[0] >= LEAST_STEPS:
                found.append(chain)
        return found

    def recurrence(self, chain: list[Step]) -> tuple[list[Node], dict[str, Node]]:
        """Returns the operators that compute all states, and the replacement for each state."""
        first = self.by_name[chain[0].state]
        product = self.by_name[first.args[0]["ref"]]
        name, shape, dtype = f"{first.name}_steps", first.outputs[0].shape, first.outputs[0].dtype
        batch, hidden = shape[-2], shape[-1]
        made: list[Node] = []

        def make(own: str, op: str, args: list[Any], *specs: TensorSpec) -> dict[str, str]:
            made.append(first.model_copy(update={"name": own, "op": op, "args": args, "kwargs": {}, "outputs": list(specs)}))
            if specs:
                self.specs[own] = specs[0]
            return {"ref": own}

        def spec(*sizes: int, stride: tuple[int, ...] | None = None) -> TensorSpec:
            return TensorSpec(shape=sizes, dtype=dtype, stride=stride)

        if chain[0].joined:
            weight, bias = product.args[1], product.args[2] if len(product.args) > 2 else None
            x, inputs = chain[0].source, self.specs[chain[0].source].shape[-1]
            gaps = contiguous_strides((hidden, inputs + hidden))
            cut = [0, inputs] if chain[0].key[-1] == 0 else [hidden, 0]
            own = make(f"{name}_input", "aten.slice.Tensor", [weight, 1, cut[0], cut[0] + inputs], spec(hidden, inputs, stride=gaps))
            recurrent = make(f"{name}_hidden", "aten.slice.Tensor", [weight, 1, cut[1], cut[1] + hidden], spec(hidden, hidden, stride=gaps))
            biases = [bias, None]
        else:
            source = self.by_name[chain[0].source]
            x = source.args[0]["ref"]
            mine = next(self.by_name[a["ref"]] for a in product.args if self.by_name[a["ref"]].op == LINEAR)
            own, recurrent = source.args[1], mine.args[1]
            biases = [source.args[2] if len(source.args) > 2 else None, mine.args[2] if len(mine.args) > 2 else None]
        if biases != [None, None]:
            for at, bias in enumerate(biases):
                if bias is None:
                    zero = make(f"{name}_zero", "aten.full.default", [[hidden], 0], spec(hidden))
                    made[-1].kwargs.update({"dtype": f"torch.{dtype}", "device": "input"})
                    biases[at] = zero
        start = make(f"{name}_first", "aten.view.default", [{"ref": chain[0].before}, [1, batch, hidden]], spec(1, batch, hidden))
        weights = [own, recurrent, *(biases if biases != [None, None] else [])]
        op = f"aten.rnn_{chain[0].key[0]}.input"
        args = [{"ref": x}, start, weights, biases != [None, None], 1, 0.0, False, False, False]
        layer = make(f"{name}_layer", op, args, spec(len(chain), batch, hidden), spec(1, batch, hidden))
        whole = make(name, "getitem", [layer, 0], spec(len(chain), batch, hidden))
        instead = {}
        for at, step in enumerate(chain):
            node = self.by_name[step.state]
            taken = {"op": "aten.select.int", "args": [whole, 0, at]}
            if len(shape) == 3:
                taken = {"op": "aten.slice.Tensor", "args": [whole, 0, at, at + 1]}
            instead[step.state] = node.model_copy(update={**taken, "kwargs": {}})
        return made, instead


def roll(nodes: list[Node], specs: dict[str, TensorSpec], results: set[str]) -> list[Node]:
    """Re-rolls the recurrences. `specs` covers every value and is extended by the new values; `results` are the values that forward returns."""
    return Roller(nodes, specs, results).rolled()


def gathered(nodes: list[Node], specs: dict[str, TensorSpec]) -> list[Node]:
    """Replaces the concatenation of all steps with the whole tensor, and products of all steps with the same weights with one product."""
    by_name = {node.name: node for node in nodes}
    found: list[Node] = []
    for node in nodes:
        names = [value["ref"] for value in node.args[0]] if node.op == CAT else []
        parts = [by_name[name] for name in names if name in by_name]
        shape = node.outputs[0].shape if node.outputs else ()
        along = plain(node.args[1]) if len(node.args) > 1 else 0
        if len(parts) < LEAST_STEPS or along % max(len(shape), 1) or len(parts) < len(names):
            found.append(node)
            continue
        weights = parts[0].args[1:] if all(part.op == LINEAR and part.args[1:] == parts[0].args[1:] for part in parts) else None
        pieces: Sequence[Node | None] = [by_name.get(part.args[0]["ref"]) for part in parts] if weights is not None else parts
        whole = steps_of(pieces, specs)
        if whole is None:
            found.append(node)
        elif weights is None:
            found.append(node.model_copy(update={"op": "aten.view.default", "args": [{"ref": whole}, list(shape)], "kwargs": {}}))
        else:
            steps, batch, depth = specs[whole].shape
            dtype = specs[whole].dtype
            rows = TensorSpec(shape=(steps * batch, depth), dtype=dtype)
            specs[f"{node.name}_rows"] = rows
            together = {"op": "aten.view.default", "args": [{"ref": whole}, [steps * batch, depth]], "kwargs": {}, "outputs": [rows]}
            found.append(node.model_copy(update={"name": f"{node.name}_rows", **together}))
            product = TensorSpec(shape=(steps * batch, shape[-1]), dtype=dtype)
            flat = shape == product.shape
            named = node.name if flat else f"{node.name}_product"
            specs[named] = product
            done = {"op": LINEAR, "args": [{"ref": f"{node.name}_rows"}, *weights], "kwargs": {}, "outputs": [product]}
            found.append(node.model_copy(update={"name": named, **done}))
            if not flat:
                found.append(node.model_copy(update={"op": "aten.view.default", "args": [{"ref": named}, list(shape)], "kwargs": {}}))
    return found


def steps_of(pieces: Sequence[Node | None], specs: dict[str, TensorSpec]) -> str | None:
    """Returns the value that consists of exactly these pieces, in order, along its first axis."""
    cut = [piece for piece in pieces if piece is not None and piece.op in ("aten.select.int", "aten.slice.Tensor") and len(piece.args) >= 3]
    if len(cut) < len(pieces):
        return None
    whole: str = cut[0].args[0]["ref"]
    shape = specs[whole].shape
    if len(shape) != 3 or len(cut) != shape[0]:
        return None
    for at, piece in enumerate(cut):
        single = piece.op == "aten.select.int" or piece.args[3:] == [at + 1]
        if piece.args[0]["ref"] != whole or plain(piece.args[1]) != 0 or plain(piece.args[2]) != at or not single:
            return None
    return whole
