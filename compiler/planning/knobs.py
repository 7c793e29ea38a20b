"""Numbers of a printed program that can be changed without changing what it computes: what each kernel has, and which values are worth trying."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from compiler import families
from compiler.figures import DeviceFigures
from compiler.graph.ir import Kernel, product
from compiler.kernel.shape import Shape
from compiler.kernel.vectors import vector_width
from compiler.options import Options
from compiler.planning.cost import left_alone
from compiler.planning.plan import CompilerPlan
from compiler.program.forward import Forward
from compiler.program.task_text import TaskText
from compiler.targets.cuda.body import Body
from compiler.targets.triton.shape import TritonShape
from compiler.targets.triton.shape import knobs_of as triton_knobs

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
    text = TaskText(task_source)
    forward = Forward(plan, TaskText(task_source, keep_forward=True) if text.has_variants else text, options)
    forward.text()
    moved = {group.id: group.bytes for group in plan.groups}
    offered: dict[str, Offered] = {}
    for kernel, shape, _ in forward.kernels:
        if isinstance(shape, TritonShape):
            offered[kernel.name] = triton_knobs(kernel, shape)
        else:
            offered[kernel.name] = of_cuda(kernel, shape) if forward.cuda else of_cpu(kernel, shape, plan.figures)
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


Offered = dict[str, tuple[tuple[int, ...], int]]  # knob: values, value now


def of_cuda(kernel: Kernel, shape: Shape) -> Offered:
    blocks = tuple(n for n in (64, 128, 256, 512, 1024) if not kernel.reduces or shape.warp_rows or shape.style == "lanes" or n <= kernel.length)
    if shape.style == "stripes":
        return {"block": ((512, 1024), shape.threads), "groups": ((0, 8, 16, 32), 0)}  # from 8 on: threads that walk down their columns
    found: Offered = {"block": (blocks, shape.threads)}
    width = vector_width(kernel)
    if shape.style == "elements":
        found["work"] = ((1, 2, 4, 8), shape.work)
    if shape.style in ("elements", "rows", "split") and width > 1:
        found["vector"] = (tuple(sorted({1, 4, width})), min(shape.vector, width))
    if shape.style == "rows" and kernel.rows >= 2 and 64 <= kernel.length <= 8192:
        found["warp-row"] = ((1, 0), int(shape.warp_rows))
    if shape.style == "lanes" or (shape.style in ("rows", "split") and not Body(kernel, shape).resident):
        found["unroll"] = ((1, 2, 4, 8), shape.unroll)
    if shape.style == "split":
        found["row-blocks"] = ((8, 32, 128, 512, 2048), shape.chunks)
    if shape.style == "lanes" and kernel.length >= 16:
        found["groups"] = (tuple(n for n in (1, 2, 4, 8, 16, 32) if 2 * n <= kernel.length), shape.groups)
    if shape.cluster:
        found["cluster"] = (tuple(n for n in (1, 2, 4, 8) if n >= shape.cluster), shape.cluster)
    if shape.style == "scan":
        found["tile"] = ((1, 2, 4, 8), shape.tile)
    found["resident-blocks"] = (tuple(n for n in (1, 2, 4, 8) if n * shape.threads <= 2048), shape.resident)
    return found


def of_cpu(kernel: Kernel, shape: Shape, figures: DeviceFigures) -> Offered:
    found: Offered = {}
    if shape.style == "scan" and len(kernel.outer) == 1:
        found["scan-rows"] = (tuple(n for n in (1, 2, 4, 8, 16) if kernel.rows % n == 0), shape.lanes)
    if shape.style != "scan":
        found["simd"] = ((4, 8, 16), shape.simd)
    if shape.style in ("rows", "split") and kernel.length > 128:
        found["sum-block"] = ((128, 256, 512, 1024), shape.block)
    if shape.style == "elements" and shape.stream:
        found["line"] = ((1024, 2048, 4096, 8192), shape.line)
    if shape.parallel:
        turns = product(kernel.sizes) if shape.style == "elements" else kernel.rows
        sizes = (1024, 4096, 16384, 65536) if shape.style == "elements" and len(kernel.inner) == 1 and not shape.stream else (1, 4, 16, 64)
        found["chunk"] = (tuple(n for n in sizes if n * figures.units <= turns), shape.chunk)
        threads = tuple(n for n in (1, 2, 4, 8, 16, 32, 64, 128) if n < figures.units)
        found["threads"] = (threads, shape.workers)
    return found
