"""The in-place changes that a printed forward makes to call counters, module state, and inputs that the task itself modifies."""

from __future__ import annotations

from collections.abc import Collection

from compiler.program.statements import Statements


class State:
    def __init__(self, statements: Statements):
        self.statements, self.graph, self.network = statements, statements.graph, statements.network
        self.counters: dict[float, list[str]] = {}  # increment -> state that only counts calls
        self.written: set[str] = set()  # state-dict names that are updated before `put`
        self.kept: set[str] = set()  # inputs whose new value lies in their memory, or in that of their contiguous copy

    def counts(self, name: str) -> bool:
        """Takes over `name`, an addition, if it only increments a counter that no other operator reads, such as `self.bn.num_batches_tracked += 1`.
        Returns whether it did so."""
        node = self.network.nodes[name]
        target = next((t for t, value in self.graph.mutations.items() if value == name), None)
        read = self.network.users[name] or self.network.results.count(name) > 1  # by an operator, or as a result of forward
        if target is None or node.op != "aten.add.Tensor" or read or not isinstance(node.args[1], (int, float)):
            return False
        source = self.network.inputs.get(node.args[0]["ref"])
        if source is None or source.target != target or self.network.users[source.name] != [name]:
            return False
        self.counters.setdefault(node.args[1], []).append(self.statements.state[target])
        self.written.add(target)
        return True

    def keep(self, name: str) -> None:
        """Records that the value of an input or of state after forward already lies in the memory from which kernels read it."""
        entry = self.network.inputs[name]
        if entry.kind == "user":
            self.kept.add(name)
        else:
            self.written.add(entry.target)

    def put(self, nodes: Collection[str] | None = None, inputs: Collection[str] = ()) -> None:
        """Adds the statements at the end of forward, or at the end of the part of forward that computes `nodes` and reads `inputs`."""
        value, put = self.statements.value, self.statements.put
        for step, counters in self.counters.items():
            if len(counters) > 1:  # a single launch for all of them
                put(f"torch._foreach_add_([{', '.join(counters)}], {step})")
            else:
                put(f"{counters[0]} += {step}")
        for target, source in self.graph.mutations.items():
            if target not in self.written and (nodes is None or source in nodes or source in inputs):  # state may become an input
                put(f"{self.statements.state[target]}.copy_({value(source)})")
        self.counters = {}
        for target, source in self.graph.mutated_inputs.items():
            if nodes is not None and target not in inputs:
                continue
            name = self.statements.variables[target]
            copy = f"original_{name}.copy_({value(source)})"
            put(*([f"if {name} is not original_{name}:", f"    {copy}"] if target in self.kept else [copy]))
