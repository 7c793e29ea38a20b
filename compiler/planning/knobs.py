"""Tunable parameters of a printed program that do not affect its results: the knobs of each kernel and the values worth trying."""

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

MOST_KERNELS = 4  # kernels per program that are tuned: the slowest ones or those that move the most memory; the others are not worth measuring


@dataclass(frozen=True)
class Number:
    """A tunable number. `name` is `KERNEL.KNOB`, and the value applies to all groups that share the kernel. `values` are sorted and include
    `value`."""

    name: str
    values: tuple[int, ...]
    value: int
    groups: tuple[str, ...]


def numbers(plan: CompilerPlan, task_source: str, options: Options, measured: Mapping[str, float] | None = None, total: float = 0.0) -> list[Number]:
    """Returns the knobs of the most expensive kernels in the program that these options print, or an empty list if it has no kernels of our own.
    `measured` holds the milliseconds of the groups whose time is known, and `total` is the program's time. A kernel is skipped if all its groups are
    at their floor or hardly contribute."""
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
    """Returns the sort key of a value. 0 means "one equal part" or "the compiler's choice" and comes last."""
    return value or float("inf")


def with_numbers(options: Options, known: list[Number], values: dict[str, int]) -> Options | None:
    """Returns the options with new values for some knobs, or None if a name or a value does not exist in the program."""
    by_name = {number.name: number for number in known}
    for name, value in values.items():
        number = by_name.get(name)
        if number is None or value not in number.values:
            return None
        for group in number.groups:
            options = options.with_knob(name.rpartition(".")[2], value, group)
    return options
