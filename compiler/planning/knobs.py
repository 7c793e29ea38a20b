"""Numbers of a printed program that can be changed without changing what it computes: what each kernel has, and which values are worth trying."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from compiler import families
from compiler.options import Options
from compiler.planning.cost import left_alone
from compiler.planning.plan import CompilerPlan
from compiler.program.forward import Forward
from compiler.program.task_text import TaskText
from compiler.targets.target import Offered

MOST_KERNELS = 4  # of a program, those that take longest or move most memory: what the others cost is not worth their measurements


@dataclass(frozen=True)
class Number:
    """`name` is `KERNEL.KNOB`; it holds for all groups that share the kernel. `values` are in order, `value` is one of them."""

    name: str
    values: tuple[int, ...]
    value: int
    groups: tuple[str, ...]


def numbers(plan: CompilerPlan, task_source: str, options: Options, measured: Mapping[str, float] | None = None, total: float = 0.0) -> list[Number]:
    """The numbers of the kernels that count most in the program that these options print; none where it has no own kernel. `measured`: milliseconds
    of each group, as far as known, of `total`; kernels whose groups are all at their floor, or hardly count, are left alone."""
    if plan.graph is None or not plan.own:
        return []
    forward = Forward(plan, TaskText.of(task_source, plan.graph), options)
    forward.text()
    moved = {group.id: group.bytes for group in plan.groups}
    offered: dict[str, Offered] = {}
    for kernel, shape, _ in forward.kernels:
        offered[kernel.name] = plan.target.knobs_of(kernel, shape, plan.figures)
    for name, (_, work, _) in forward.printed.items():
        offered[name] = families.by_name(work.match.family).knobs(work)
    known, groups = measured or {}, {group.id: group for group in plan.groups}
    worth = [name for name in offered if not all(left_alone(groups[g], known.get(g), total) for g in forward.groups_of[name])]
    heaviest = sorted(
        worth, key=lambda name: (-sum(known.get(g, 0.0) for g in forward.groups_of[name]), -sum(moved[g] for g in forward.groups_of[name]))
    )
    found = []
    for name in heaviest[:MOST_KERNELS]:
        for knob, (values, now) in offered[name].items():
            values = tuple(sorted({*values, now}, key=rank))
            if len(values) > 1:
                found.append(Number(f"{name}.{knob}", values, now, tuple(forward.groups_of[name])))
    return found


def rank(value: int) -> float:
    """0 stands for "one equal part" or "the compiler's choice": beyond all others."""
    return value or float("inf")


def with_numbers(options: Options, known: list[Number], values: dict[str, int]) -> Options | None:
    """The options with numbers at other values; null for a name or a value that the program does not have."""
    by_name = {number.name: number for number in known}
    for name, value in values.items():
        number = by_name.get(name)
        if number is None or value not in number.values:
            return None
        for group in number.groups:
            options = options.with_knob(name.rpartition(".")[2], value, group)
    return options
