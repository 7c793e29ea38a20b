"""Chooses the axes of a task's landscape. Axes are compiler strategies and parameters that change the program. They are added until there are enough
distinct programs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from math import prod

from agents.arena.landscape import Axis
from compiler import CompilerPlan, Options, print_program
from compiler.graph.network import Network
from compiler.kernel.builder import Refused
from compiler.kernel.fuse import build
from compiler.kernel.shape import Shape, shape_of
from compiler.planning.knobs import Number, numbers, rank

GROUPS = 3  # number of generated kernels whose choices are varied: those that move the most bytes

# Each row is (name, values, catalogue strategy, kernel styles that it can change). If the last field is empty, the axis applies to all styles. A
# number that implements a strategy carries that strategy's name.
CUDA: tuple[tuple[str, tuple[int, ...], str, tuple[str, ...]], ...] = (
    ("warp-row", (0, 1), "warp-per-row", ("rows", "split")),
    ("parallel-split", (0, 1), "parallel-split", ("rows",)),
    ("row-cache", (1, 0), "row-cache", ("rows",)),
    ("block", (256, 512, 128, 1024, 64), "block-size", ()),
    ("vector", (4, 1), "vectorise", ("elements", "rows", "split")),
    ("tile", (4, 8, 2, 16, 1), "work-per-thread", ("scan",)),
    ("work", (1, 2, 4, 8), "work-per-thread", ("elements",)),
    ("leave-to-library", (0, 1), "leave-to-library", ()),
    ("unroll", (0, 4, 2, 8, 16), "unroll", ("lanes", "rows", "split")),
    ("row-blocks", (32, 16, 64, 8), "parallel-split", ("split",)),
    ("resident-blocks", (0, 2, 4, 1, 8), "occupancy", ()),
)
CPU: tuple[tuple[str, tuple[int, ...], str, tuple[str, ...]], ...] = (
    ("parallel-split", (0, 1), "parallel-split", ("rows",)),
    ("row-cache", (1, 0), "row-cache", ("rows",)),
    ("non-temporal-stores", (0, 1), "non-temporal-stores", ("rows", "elements")),
    ("scan-rows", (8, 4, 16), "block-size", ("scan",)),
    ("threads", (0, 1, 2), "parallel-split", ()),
    ("sum-block", (512, 128, 2048, 64), "block-size", ("rows", "split")),
    ("chunk", (0, 1, 8, 64), "block-size", ()),
    ("simd", (0, 4, 8, 16), "vectorise", ()),
    ("line", (4096, 1024, 16384), "block-size", ("rows", "elements")),
    ("leave-to-library", (0, 1), "leave-to-library", ()),
)
STRATEGIES = ("parallel-split", "row-cache", "non-temporal-stores", "leave-to-library", "cuda-graph")  # all other axes are numbers
# Numbers for the kernels that families generate (products, convolutions, pools, scans over time), named as in `compiler.planning.knobs`.
FAMILIES = {
    "tile": "register-blocking", "stages": "software-pipeline", "split": "split-k", "strip": "work-per-thread", "warps": "block-size",
    "window-threads": "block-size", "direct": "tile-reuse",
}  # fmt: skip
BINARY = ("warp-row", "direct")  # numbers that select one of two kernels
FIELDS = {"block": "threads", "warp-row": "warp_rows", "scan-rows": "lanes"}  # fields of Shape that hold the compiler's own number


@dataclass
class Space:
    """The axes and, for each point in table order, the index of its program in `sources`."""

    axes: tuple[Axis, ...]
    program: list[int]
    sources: list[str]

    @property
    def sha(self) -> str:
        """Returns a hash of all programs."""
        return hashlib.sha256("\0".join(self.sources).encode()).hexdigest()


def space(plan: CompilerPlan, task_source: str, wanted: int, most: int) -> Space:
    """Adds axes in the order of the table above, group by group, until there are at least `wanted` distinct programs. Uses at most `most` points.

    An axis that changes no program in any combination is left out, as are values that would exceed `most`.
    """
    chosen: list[Axis] = []
    printed = Printed(plan, task_source)
    programs = printed.space(chosen)
    for axis in candidates(plan, task_source):
        room = most // max(prod(len(a.values) for a in chosen), 1)
        best = None
        for count in range(2, min(len(axis.values), room) + 1):
            narrowed = Axis(axis.name, axis.group, axis.values[:count], 0, axis.strategy, axis.numeric)
            tried = printed.space([*chosen, narrowed])
            if len(tried.sources) > len((best or programs).sources):
                best = tried
            if len(tried.sources) >= wanted:
                break
        if best is not None:
            chosen, programs = list(best.axes), best
        if len(programs.sources) >= wanted:
            break
    return _ordered(programs)


def candidates(plan: CompilerPlan, task_source: str) -> Iterator[Axis]:
    """Yields candidate axes, each with its default value first. Each kind of choice is yielded for all groups before the next kind starts. Choices
    that apply only to families come last."""
    kind = plan.figures.kind
    if kind == "cuda" and plan.graph is not None and plan.graph.recordable:
        yield Axis("cuda-graph", "", (0, 1), 0, "cuda-graph")
    groups = [group.id for group in sorted(plan.own, key=lambda group: -group.bytes)[:GROUPS]]
    offered = {(number.name.rpartition(".")[2], group): number for number in numbers(plan, task_source, Options()) for group in number.groups}
    shapes = shapes_of(plan, groups)
    few = 3 if len(groups) > 1 else 8  # values per number; if there are several kernels, a few values are enough
    table = CUDA if kind == "cuda" else CPU
    for name, values, strategy, styles in table:
        for group in groups:
            shape, number = shapes.get(group), offered.get((name, group))
            if name in STRATEGIES and (not styles or (shape is not None and shape.style in styles)):
                yield Axis(name, group, (int(Options().on(name, group)), int(not Options().on(name, group))), 0, strategy)
            elif number is not None and name not in BINARY:
                yield axis_of(name, group, number.value, around(number), FAMILIES.get(name, strategy) if shape is None else strategy, few)
            elif shape is not None and name not in STRATEGIES and (not styles or shape.style in styles):
                own = int(getattr(shape, FIELDS[name])) if name in FIELDS else values[0]
                yield axis_of(name, group, own, values, strategy, few)
    for (name, group), number in offered.items():
        if group in groups and name not in {row[0] for row in table}:
            yield axis_of(name, group, number.value, around(number), FAMILIES.get(name, "block-size"), few)


def axis_of(name: str, group: str, own: int, values: Sequence[int], strategy: str, few: int) -> Axis:
    return Axis(name, group, (own, *(value for value in values if value != own))[:few], 0, strategy, numeric=name not in BINARY)


def around(number: Number) -> list[int]:
    """Returns candidate values for the number, closest to the current one first."""
    here = number.values.index(number.value)
    return sorted(number.values, key=lambda value: abs(number.values.index(value) - here))


def shapes_of(plan: CompilerPlan, groups: list[str]) -> dict[str, Shape]:
    """Returns how each fused-loop kernel runs, keyed by group. Kernels that a kernel family generates are left out."""
    found: dict[str, Shape] = {}
    if plan.graph is None:
        return found
    network = Network(plan.graph)
    for group in plan.own:
        if group.id in groups:
            with suppress(Refused):
                found[group.id] = shape_of(build(network, group.operators), plan.figures, Options(), group.id)
    return found


def options_at(axes: tuple[Axis, ...] | list[Axis], values: tuple[int, ...]) -> Options:
    """Returns the compiler options for one combination of values."""
    options = Options()
    for axis, value in zip(axes, values, strict=True):
        if axis.name in STRATEGIES:
            options = options.choose(axis.name, axis.group, bool(value))
        elif value != axis.values[axis.default]:
            options = options.with_knob(axis.name, value, axis.group)
    return options


class Printed:
    """Caches programs, keyed by the choices that differ from the compiler's own, so that trying another axis generates only programs not yet in the
    cache."""

    def __init__(self, plan: CompilerPlan, task_source: str):
        self.plan, self.task_source = plan, task_source
        self._known: dict[frozenset[tuple[str, str, int]], str] = {}

    def program(self, axes: list[Axis], values: tuple[int, ...]) -> str:
        key = frozenset((a.name, a.group, value) for a, value in zip(axes, values, strict=True) if value != a.values[a.default])
        if key not in self._known:
            self._known[key] = print_program(self.plan, self.task_source, options_at(axes, values))
        return self._known[key]

    def space(self, axes: list[Axis]) -> Space:
        sources: dict[str, int] = {}
        program = [sources.setdefault(self.program(axes, values), len(sources)) for values in product(*(a.values for a in axes))]
        return Space(tuple(axes), program, list(sources))


def _ordered(found: Space) -> Space:
    """Returns the same space with the values of numbers sorted, as coordinate descent and readers expect. 0 comes last."""
    axes = []
    for axis in found.axes:
        values = tuple(sorted(axis.values, key=rank if axis.numeric else None))
        axes.append(Axis(axis.name, axis.group, values, values.index(axis.values[axis.default]), axis.strategy, axis.numeric))
    before = dict(zip(product(*(a.values for a in found.axes)), found.program, strict=True))
    return Space(tuple(axes), [before[point] for point in product(*(a.values for a in axes))], found.sources)
