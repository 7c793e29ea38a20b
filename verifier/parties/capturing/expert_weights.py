"""Collects the values that differ between experts (weights, and values computed from them) and stacks them along one axis."""

# sandboxed: reads graphs of the models that tasks define

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from verifier.graph import Graph, Node
from verifier.parties.capturing.loop_nodes import Unlike, at_pass, free_name, reads, renamed
from verifier.parties.capturing.row_wise import operator_name
from verifier.parties.capturing.written import Written
from verifier.task import TensorSpec

MOST_COPIES = 1024  # maximum number of operators that are computed separately for each expert


@dataclass
class Passes:
    """The captures of the first two passes, of which the second has a different number of rows. `results` maps inputs of the passes to their new
    values; `state` maps weights that differ between passes to their state-dict names, one per expert."""

    one: Graph
    other: Graph
    experts: int
    results: dict[str, str]
    asked: list[str]
    state: dict[str, list[str]]


@dataclass
class Stacks:
    """Stacks the values of all experts. `values` maps the values of a pass that are the same for all experts to values of the whole graph; `weights`
    holds the weights of all experts; `varying` holds the values that differ between passes."""

    passes: Passes
    values: dict[str, Any]
    weights: dict[str, Any]
    varying: set[str]
    out: Written
    made: dict[tuple[str, int], str] = field(default_factory=dict)  # (value, expert) -> the value computed for that expert; expert -1 is the stack

    def __post_init__(self) -> None:
        one = self.passes.one
        self.nodes = {node.name: node for node in one.nodes}
        self.others = {node.name: node for node in self.passes.other.nodes}
        self.specs: dict[str, TensorSpec] = {n.name: n.outputs[0] for n in one.nodes if n.outputs} | {e.name: e.spec for e in one.inputs if e.spec}

    def by_columns(self, node: Node, name: str, by_columns: bool) -> Any:
        """Returns the weights of all experts, shaped (experts, columns, depth)."""
        maker = self.nodes.get(name)
        while maker is not None and operator_name(maker) in ("t", "transpose", "permute"):
            turned = operator_name(maker) != "permute" or maker.args[1] == [1, 0]
            name, by_columns = maker.args[0]["ref"], by_columns != turned
            maker = self.nodes.get(name)
        stack, (lines, across) = self.stacked(name), self.specs[name].shape
        if by_columns:
            return stack
        size = (self.passes.experts, across, lines)
        return self.out.emit(node, "aten.permute.default", [stack, [0, 2, 1]], size, self.specs[name].dtype)

    def stacked(self, name: str) -> Any:
        """Returns a value that differs between passes, stacked for all experts along a new first axis."""
        key = (name, -1)
        if key not in self.made:
            self.made[key] = self._stacked(name)["ref"]
        return {"ref": self.made[key]}

    def _stacked(self, name: str) -> Any:
        count, spec, node = self.passes.experts, self.specs[name], self.nodes.get(name)
        size = (count, *spec.shape)
        maker = node or self.passes.one.nodes[0]
        if node is not None and node.op == "aten.select.int" and node.args[0]["ref"] in self.values and self.others[name].args[2] == node.args[2] + 1:
            source, axis, first = self.values[node.args[0]["ref"]], node.args[1], node.args[2]
            whole = tuple(self.specs[node.args[0]["ref"]].shape)
            if axis % len(whole):
                order = [axis % len(whole), *(at for at in range(len(whole)) if at != axis % len(whole))]
                whole = tuple(whole[at] for at in order)
                source = self.out.emit(maker, "aten.permute.default", [source, order], whole, spec.dtype)
            if whole[0] == count and not first:
                return source
            if first < 0 or first + count > whole[0]:
                raise Unlike("there are fewer weights than experts")
            return self.out.emit(maker, "aten.slice.Tensor", [source, 0, first, first + count], size, spec.dtype)
        parts = [self._of_expert(name, expert) for expert in range(count)]
        return self.out.emit(maker, "aten.stack.default", [parts], size, spec.dtype)

    def _of_expert(self, name: str, expert: int) -> Any:
        if name not in self.varying:
            return self.values[name]
        if name in self.passes.state:
            return self.weights[self.passes.state[name][expert]]
        if (name, expert) not in self.made:
            if len(self.made) > MOST_COPIES:
                raise Unlike("too many values are computed for each expert separately")
            node, other = self.nodes[name], self.others[name]
            names = {read: self._of_expert(read, expert) for read in reads(node)}
            args = renamed(at_pass(node.args, other.args, expert), names)
            kwargs = {key: renamed(at_pass(value, other.kwargs[key], expert), names) for key, value in node.kwargs.items()}
            made = node.model_copy(update={"name": free_name(f"{name}_{expert}", self.out.taken), "args": args, "kwargs": kwargs})
            self.out.found.append(made)
            self.made[name, expert] = made.name
        return {"ref": self.made[name, expert]}
