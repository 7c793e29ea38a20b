"""Schedules the passes of a kernel over a row: what each pass computes, keeps for a later pass, reduces and stores. Both printers use this
schedule."""

from __future__ import annotations

from dataclasses import dataclass, field

from compiler.graph.ir import Kernel, Op, Store
from compiler.kernel.functions import DEAR

KEPT = DEAR | {"scan"}


@dataclass
class Pass:
    """One loop over the elements of a row. `rows` are operations on row values, computed before the loop."""

    rows: list[Op] = field(default_factory=list)
    elements: list[Op] = field(default_factory=list)  # in order, without the operations that are read from a cache
    reduces: list[Op] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)
    keeps: list[str] = field(default_factory=list)  # operations that this pass writes to their cache
    cached: list[str] = field(default_factory=list)  # operations that this pass reads from their cache

    @property
    def scans(self) -> bool:
        return any(op.kind == "scan" for op in self.elements)


@dataclass
class Schedule:
    passes: list[Pass]
    tail: list[Op]  # operations on row values that follow the last loop
    row_stores: list[Store]
    caches: list[str]  # operations whose elements are kept between passes

    def uses(self, at: int, name: str) -> int:
        """Returns how many times pass `at` uses operation `name`."""
        step = self.passes[at]
        names = [arg for op in [*step.elements, *step.reduces] for arg in op.args]
        names += [op.access.index for op in step.elements if op.access.index]
        return names.count(name) + sum(store.op == name for store in step.stores) + step.keeps.count(name)

    def named(self, at: int, name: str) -> bool:
        """Returns whether `name` needs a variable in pass `at`. It needs one in three cases: it is an operand of a maximum or minimum, which would
        print it several times; it is one side of a select, both sides of which are always computed because a branch would prevent SIMD; or it is
        loaded from memory that a store other than the last one overwrites."""
        step = self.passes[at]
        chosen = any(op.kind == "where" and name in op.args for op in step.elements)
        overwritten = {store.access.argument for store in step.stores[:-1]}
        early = any(op.name == name and op.kind == "load" and op.access.argument in overwritten for op in [*step.rows, *step.elements])
        return chosen or early or any(op.attr != "sum" and name in op.args for op in step.reduces)


def schedule(kernel: Kernel, cache: bool = True) -> Schedule:
    """Schedules the kernel. If `cache` is set, results of expensive functions are kept between passes instead of being recomputed."""
    ops = kernel.ops
    stage: dict[str, int] = {}
    for op in ops.values():
        ready = max((stage[a] for a in op.args), default=0)
        stage[op.name] = ready + 1 if op.kind == "reduce" else ready
    last = max([stage[s.op] for s in kernel.stores if s.level == "full"] + [stage[op.name] - 1 for op in ops.values() if op.kind == "reduce"] + [0])
    passes = [Pass() for _ in range(last + 1)]
    for op in ops.values():
        if op.kind == "reduce":
            passes[stage[op.name] - 1].reduces.append(op)
    for store in kernel.stores:
        if store.level == "full":
            passes[stage[store.op]].stores.append(store)

    dear: dict[str, bool] = {}
    for op in ops.values():
        dear[op.name] = op.level == "full" and (op.kind in KEPT or any(dear[a] for a in op.args))
    caches: list[str] = []
    for at, step in enumerate(passes):
        needed: dict[str, None] = {}

        def visit(name: str, at: int = at, step: Pass = step, needed: dict[str, None] = needed) -> None:
            op = ops[name]
            if name in needed or op.level == "row":
                return
            if stage[name] < at and dear[name] and cache:
                if name not in caches:
                    caches.append(name)
                if name not in step.cached:
                    step.cached.append(name)
                return
            for argument in op.args:
                visit(argument)
            needed[name] = None

        for op in step.reduces:
            visit(op.args[0])
        for store in step.stores:
            visit(store.op)
        step.elements = [op for op in ops.values() if op.name in needed]
    for name in caches:
        home = passes[stage[name]]
        home.keeps.append(name)
        if name not in {op.name for op in home.elements}:  # only later passes need it
            missing: dict[str, None] = {}

            def collect(name: str, missing: dict[str, None] = missing, home: Pass = home) -> None:
                if ops[name].level == "full" and name not in home.cached:
                    for argument in ops[name].args:
                        collect(argument)
                    missing[name] = None

            collect(name)
            wanted = {op.name for op in home.elements} | set(missing)
            home.elements = [op for op in ops.values() if op.name in wanted]

    placed: set[str] = set()
    row_ops = [op for op in ops.values() if op.level == "row" and op.kind != "reduce"]
    wanted_rows = _row_closure(kernel, passes)
    for at, step in enumerate(passes):
        for op in row_ops:
            if op.name not in placed and op.name in wanted_rows and stage[op.name] <= at and _needed_by(kernel, op.name, step, row_ops):
                step.rows.append(op)
                placed.add(op.name)
    tail = [op for op in row_ops if op.name not in placed and op.name in wanted_rows]
    return Schedule(passes, tail, [s for s in kernel.stores if s.level == "row"], caches)


def _row_closure(kernel: Kernel, passes: list[Pass]) -> set[str]:
    """Returns all row values that are needed."""
    wanted = {store.op for store in kernel.stores}
    for step in passes:
        for op in [*step.elements, *step.reduces]:
            wanted.update(op.args)
    for op in reversed(list(kernel.ops.values())):
        if op.name in wanted:
            wanted.update(op.args)
    return wanted


def _needed_by(kernel: Kernel, name: str, step: Pass, row_ops: list[Op]) -> bool:
    """Returns whether pass `step` reads row value `name`, directly or through other row values."""
    direct = {arg for op in [*step.elements, *step.reduces] for arg in op.args} | {store.op for store in step.stores}
    for op in reversed(row_ops):
        if op.name in direct:
            direct.update(op.args)
    return name in direct
