"""Prints writes to a part of an input or of module state in the memory of that tensor, instead of in a copy of it."""

from __future__ import annotations

from collections.abc import Callable, Collection

from compiler.graph.network import Network, plain
from compiler.graph.overwriting import old_readers
from compiler.graph.regions import REGION
from compiler.program.print_torch import literal
from compiler.program.state import State
from compiler.program.statements import Statements
from verifier.graph import Node


class InPlace:
    """Tracks the values of one forward that are stored in the memory of an input or of state. `library` reports whether no kernel computes an
    operator.
    `enabled` is false if another stream may still be reading what a write would overwrite."""

    def __init__(self, statements: Statements, state: State, library: Callable[[str], bool], enabled: bool):
        self.statements, self.network, self.state, self.library, self.enabled = statements, statements.network, state, library, enabled
        self.held: set[str] = set()  # results of the writes

    def allows(self, name: str, done: Collection[str]) -> bool:
        """Returns whether operator `name` may overwrite its source when the operators in `done`, and no others, have run."""
        write = self.network.overwrites.get(name)
        if write is None or not self.enabled or (write.source != write.root and write.source not in self.held):
            return False
        return old_readers(self.network, name) <= set(done) and (not write.then or self.library(write.then))

    def hold(self, name: str) -> None:
        """Records that the result of operator `name` is stored in the memory of its source."""
        write = self.network.overwrites[name]
        first = self.network.nodes[name].args[0]["ref"]
        if write.then or first == write.source:
            self.statements.variables[name] = self.statements.value(first)
        else:
            text = self.statements.value(first)
            self.statements.variables[name] = variable = self.statements.fresh(name)
            self.statements.put(f"{variable} = {text}")
        self.held.add(name)
        if write.final:
            self.state.keep(write.root)

    def put(self, name: str, value: Callable[[str], str]) -> None:
        """Prints operator `name` as a write to its source. `value` is as in `expression`."""
        if self.network.overwrites[name].part not in self.held:
            self.statements.put(statement(self.network, self.network.nodes[name], value))
        self.hold(name)


def statement(network: Network, node: Node, value: Callable[[str], str]) -> str:
    """Returns the statement that performs the operator in the memory of its first argument."""
    name = node.op.split(".")[1]
    if name in ("slice_scatter", "select_scatter") or node.op == REGION:
        whole, part = node.args[0]["ref"], node.args[1]["ref"]
        copied = ".clone()" if network.base(part) == network.base(whole) else ""  # it would change while it is read
        return f"{value(whole)}[{', '.join(_cuts(network, node))}] = {value(part)}{copied}"
    whole, *args = [literal(argument, value) for argument in node.args]
    args += [f"{word}={literal(argument, value)}" for word, argument in node.kwargs.items()]
    if name == "index_put":  # the method does not accept axes without an index
        return f"torch.ops.aten.index_put_.default({', '.join([whole, *args])})"
    return f"{whole}.{name}_({', '.join(args)})"


def _cuts(network: Network, node: Node) -> list[str]:
    """Returns the subscripts of the part that a scatter into slices or into one position of an axis replaces."""
    shape = network.spec(node.name).shape
    if node.op == REGION:
        cuts = {axis: f"{start}:{start + count}" for axis, start, count in node.args[2]}
    elif node.op.startswith("aten.select_scatter."):
        axis = plain(node.args[2]) % len(shape)
        cuts = {axis: str(plain(node.args[3]) % shape[axis])}
    else:
        axis, start, end, step = [*(plain(one) for one in node.args[2:]), *[None] * 4][:4]
        axis = (axis or 0) % len(shape)
        size = shape[axis]
        first, last = (min(max(at + size if at < 0 else at, 0), size) for at in (start or 0, size if end is None else end))
        cuts = {axis: f"{first}:{max(first, last)}" + (f":{step}" if step not in (None, 1) else "")}
    return [cuts.get(axis, ":") for axis in range(max(cuts) + 1)]
