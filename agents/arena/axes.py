"""Which choices make a task's landscape: the strategies and numbers of the compiler that change its program, until there are programs enough."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod

from agents.arena.landscape import Axis
from agents.compiler import CompilerPlan, Options, print_program
from agents.compiler.builder import Refused
from agents.compiler.groups.fuse import build
from agents.compiler.kernels.shape import Shape, shape_of
from agents.compiler.network import Network

GROUPS = 3  # own kernels whose choices are varied: those that move most bytes

# (name, values, strategy of the catalogue, the styles of kernels that it can change; empty: all). Numbers that stand for a strategy carry its name.
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
STRATEGIES = ("parallel-split", "row-cache", "non-temporal-stores", "leave-to-library", "cuda-graph")  # the rest are numbers
FIELDS = {"block": "threads", "warp-row": "warp_rows", "scan-rows": "lanes"}  # of Shape, where the compiler's own number stands


@dataclass
class Space:
    """The axes, and for each point in the table's order the number of its program in `sources`."""

    axes: tuple[Axis, ...]
    program: list[int]
    sources: list[str]


def space(plan: CompilerPlan, task_source: str, wanted: int, most: int) -> Space:
    """Axes are added in the order of the table above, group after group, until at least `wanted` programs differ; at most `most` points.

    An axis that changes no program in any combination is left out, and so are values that would exceed `most`.
    """
    chosen: list[Axis] = []
    printed = Printed(plan, task_source)
    programs = printed.space(chosen)
    for axis in candidates(plan):
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


def candidates(plan: CompilerPlan) -> Iterator[Axis]:
    """The default value first; one kind of choice for all groups before the next kind."""
    kind = plan.figures.kind
    if kind == "cuda" and plan.graph is not None and not plan.graph.mutated_inputs:
        yield Axis("cuda-graph", "", (0, 1), 0, "cuda-graph")
    network = Network(plan.graph)
    shapes: dict[str, Shape] = {}
    for group in sorted(plan.own, key=lambda group: -group.bytes)[:GROUPS]:
        try:
            shapes[group.id] = shape_of(build(network, group.operators), plan.figures, Options(), group.id)
        except Refused:
            continue
    few = 3 if len(shapes) > 1 else 8  # values of a number: with several kernels there are combinations enough
    for name, values, strategy, styles in CUDA if kind == "cuda" else CPU:
        for group, shape in shapes.items():
            if styles and shape.style not in styles:
                continue
            if name in STRATEGIES:
                yield Axis(name, group, (int(Options().on(name, group)), int(not Options().on(name, group))), 0, strategy)
                continue
            own = int(getattr(shape, FIELDS[name])) if name in FIELDS else values[0]
            yield Axis(name, group, (own, *(value for value in values if value != own))[:few], 0, strategy, numeric=name != "warp-row")


def options_at(axes: tuple[Axis, ...] | list[Axis], values: tuple[int, ...]) -> Options:
    """The compiler's options for one combination of values."""
    options = Options()
    for axis, value in zip(axes, values, strict=True):
        if axis.name in STRATEGIES:
            options = options.choose(axis.name, axis.group, bool(value))
        elif value != axis.values[axis.default]:
            options = options.with_knob(axis.name, value, axis.group)
    return options


class Printed:
    """Programs by the choices that differ from the compiler's own: trying one axis more prints only what is new."""

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
    """The same space with the values of numbers in order, as coordinate descent and people want them."""
    axes = []
    for axis in found.axes:
        values = tuple(sorted(axis.values))
        axes.append(Axis(axis.name, axis.group, values, values.index(axis.values[axis.default]), axis.strategy, axis.numeric))
    before = dict(zip(product(*(a.values for a in found.axes)), found.program, strict=True))
    return Space(tuple(axes), [before[point] for point in product(*(a.values for a in axes))], found.sources)
