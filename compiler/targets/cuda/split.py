"""Reductions over a few long rows on the GPU. Many blocks share a row, and each pass over the rows is a separate kernel."""

from __future__ import annotations

from compiler.graph.ir import Kernel, Op
from compiler.kernel.schedule import Pass
from compiler.kernel.shape import Shape
from compiler.kernel.text import shift, times
from compiler.targets.cuda.body import HOW, START, Body


def passes(kernel: Kernel, shape: Shape, body: Body) -> list[tuple[list[str], int]]:
    """Returns the lines and the grid of each kernel. `scratch` holds one double for each reduction, row and block of the row, and the next kernel
    combines them."""
    chunks, steps = shape.chunks, body.plan.passes
    slots: dict[str, int] = {}
    finished: list[Op] = []
    found = []
    last = bool(body.plan.row_stores and steps[-1].reduces)  # per-row values are left to a kernel with one block per row
    for at in range(len(steps) + last):
        step = steps[at] if at < len(steps) else Pass()
        elements = bool(step.elements or step.stores or step.reduces)
        if elements:
            body.put(f"const long row = blockIdx.x / {chunks};")
            body.put(f"const int chunk = blockIdx.x % {chunks}, thread = threadIdx.x;")
        elif kernel.outer:
            body.put("const long row = blockIdx.x;")
        if len(kernel.outer) > 1:
            body.unravel("row", kernel.outer, "long")
        known: dict[str, str] = {}
        for op in finished:
            where = part(kernel, chunks, slots[op.name], "row" if elements or kernel.outer else "0")
            start = "0.0" if op.attr == "sum" else f"(double){START[op.attr]}"
            joined = f"over_parts<{HOW[op.attr]}, {shape.threads}>(scratch + {where}, {chunks}, {start})"
            wide = op.dtype == "float64"
            body.put(f"const {'double' if wide else 'float'} {op.name} = {joined if wide else f'(float){joined}'};")
            known[op.name] = op.name
        if elements:
            for earlier in steps[: at + 1]:
                body.row_values(earlier.rows, known)
            body.declare(step)
            body.items_loop(step, known, shape.threads * chunks, kernel.length, f"({times('chunk', shape.threads)} + thread)")
        for op in step.reduces:
            slots[op.name] = len(slots)
            body.combine(op, known, keep=True)
            body.put(f"if (thread == 0) scratch[{part(kernel, chunks, slots[op.name], 'row')} + chunk] = {known[op.name]};")
        finished += step.reduces
        if at == len(steps) + last - 1:
            if not elements:
                body.row_values([op for earlier in steps for op in earlier.rows], known)
            body.finish(known, "chunk == 0 && thread == 0" if elements else "threadIdx.x == 0")
        found.append((body.take(), kernel.rows * chunks if elements else kernel.rows))
    return found


def part(kernel: Kernel, chunks: int, slot: int, row: str) -> str:
    """Returns the start position of a row's parts in `scratch`."""
    first = f"({shift(slot * kernel.rows)} + {row})" if slot else row
    return times(first, chunks) if first != "0" else "0"


def scratch_floats(kernel: Kernel, shape: Shape, body: Body) -> int:
    """Returns the length of `scratch` in floats."""
    return 2 * sum(len(step.reduces) for step in body.plan.passes) * kernel.rows * shape.chunks
