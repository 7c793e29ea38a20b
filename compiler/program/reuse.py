"""Writes results over values that have no other reader, which saves memory and reuses cached lines."""

from __future__ import annotations

from collections.abc import Callable

from compiler.graph.ir import Kernel, Store
from compiler.kernel.schedule import Schedule
from compiler.planning.plan import Group
from compiler.program.state import State
from compiler.program.statements import Statements


def reuse(
    kernel: Kernel, plan: Schedule, group: Group, done: set[str], may_overwrite: Callable[[str], bool], statements: Statements, state: State
) -> None:
    """Removes those arguments of `kernel` whose values can overwrite one of its inputs. `done` holds the operators that have already run, and
    `may_overwrite` reports whether the program itself allocated the memory of a graph value."""
    inside = set(group.operators)
    mutated = {value: name for name, value in statements.graph.mutations.items()}
    targets = {entry.target: entry for entry in statements.graph.inputs if entry.target}
    for store in list(kernel.stores):
        out = kernel.arguments[store.access.argument]
        if out.read or store.how:
            continue
        for source in list(kernel.arguments.values()):
            if source is out or source.written or source.dtype != out.dtype or source.elements != out.elements:
                continue
            reads = [op for op in kernel.ops.values() if op.access.argument == source.name]
            if any(op.kind != "load" or (op.access.strides, op.access.offset) != (store.access.strides, 0) for op in reads):
                continue
            names = {op.name for op in reads}
            if not statements.network.readers(source.value) <= inside | done or _read_after(plan, store, names) or _read_by_all(plan, store, names):
                continue
            entry = statements.network.inputs.get(source.value)
            if entry is not None and entry.spec is not None and entry.spec.stride is not None:
                continue  # the kernel reads a copy of it
            if out.value in mutated and targets[mutated[out.value]].name == source.value:
                state.written.add(mutated[out.value])
            elif not may_overwrite(source.value):
                continue
            store.access.argument = source.name
            source.written = True
            shape = tuple(statements.network.spec(out.value).shape)
            turned = "" if shape == tuple(statements.network.spec(source.value).shape) else f".view({shape})"
            statements.variables[out.value] = statements.value(source.value) + turned
            del kernel.arguments[out.name]
            break


def _read_after(plan: Schedule, store: Store, reads: set[str]) -> bool:
    """Returns whether a pass after the storing pass reads the source again."""
    if store.level != "full" or store in plan.passes[-1].stores:
        return False
    last = max((at for at, step in enumerate(plan.passes) if any(op.name in reads for op in step.elements)), default=0)
    return last > next(at for at, step in enumerate(plan.passes) if store in step.stores)


def _read_by_all(plan: Schedule, store: Store, reads: set[str]) -> bool:
    """Returns whether all threads of a row read a value that one of them overwrites at the end of the row, perhaps before the others have read it."""
    return store.level == "row" and any(op.name in reads for step in plan.passes for op in step.rows)
