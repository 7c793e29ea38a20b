"""Reductions over long, interleaved rows (such as the channels of channels-last images), in which many blocks share a tile of rows.

Neighbouring threads process neighbouring rows. The elements of a row are distributed round-robin over the groups of a block and the blocks of a tile.
Each pass over the rows is a separate kernel. `scratch` holds one double for each reduction, block of the tile and row, and the next kernel combines
them. If there are many blocks, each of them would have to combine many partial results. In that case, a small kernel between the passes combines the
partial results once and appends one double for each reduction and row to `scratch`.
"""

from __future__ import annotations

from compiler.graph.ir import Kernel, Op
from compiler.kernel.schedule import Pass
from compiler.kernel.shape import Shape
from compiler.kernel.text import below, end, shift, times
from compiler.targets.cuda.body import HOW, START, Body

MOST_JOINED = 64  # largest number of row parts that each block of the next pass combines itself (512 bytes per row and reduction)


def passes(kernel: Kernel, shape: Shape, body: Body) -> list[tuple[list[str], int]]:
    """Returns the lines and the grid of each kernel."""
    groups, chunks, rows = shape.groups, shape.chunks, kernel.rows
    wide = shape.threads // groups
    tiles, ragged = -(-rows // wide), bool(rows % wide)
    steps = body.plan.passes
    slots: dict[str, int] = {}
    finished: list[Op] = []
    joined: list[Op] = []  # reductions combined by an intermediate kernel
    found = []
    last = bool(body.plan.row_stores and steps[-1].reduces)  # per-row values are left to a kernel with one block per tile
    for at in range(len(steps) + last):
        step = steps[at] if at < len(steps) else Pass()
        elements = bool(step.elements or step.stores or step.reduces)
        inside = below("mine", rows) if ragged else ""
        if elements and chunks > MOST_JOINED and (fresh := [op for op in finished if op not in joined]):
            begin("blockIdx.x", wide, rows, body)
            for op in fresh:
                join_chunks(op, slots[op.name], rows, shape, wide, body)
                body.put(
                    f"if ({' && '.join(filter(None, ['group == 0', inside]))}) scratch[{whole(kernel, shape, body, slots[op.name])}] = {op.name};"
                )
            joined += fresh
            found.append((body.take(), tiles))
        begin(
            f"blockIdx.x / {chunks}" if elements else "blockIdx.x", wide, rows, body, f"const int chunk = blockIdx.x % {chunks};" if elements else ""
        )
        if len(kernel.outer) > 1:
            body.unravel("row", kernel.outer, "long")
        known: dict[str, str] = {}
        for op in finished:
            if op in joined:
                kind = "double" if op.dtype == "float64" else "float"
                value = f"scratch[{whole(kernel, shape, body, slots[op.name])}]"
                body.put(f"const {kind} {op.name} = {value if kind == 'double' else f'(float){value}'};")
            else:
                join_chunks(op, slots[op.name], rows, shape, wide, body)
            known[op.name] = op.name
        if elements:
            for earlier in steps[: at + 1]:
                body.row_values(earlier.rows, known)
            body.declare(step)
            walk(step, kernel, shape, body, known, inside)
        for op in step.reduces:
            slots[op.name] = len(slots)
            first = f"({shift(slots[op.name] * chunks)} + chunk)" if slots[op.name] else "chunk"
            body.put(f"const double {op.name} = over_groups<{HOW[op.attr]}, {wide}, {groups}>({op.name}_part);")
            body.put(f"if ({' && '.join(filter(None, ['group == 0', inside]))}) scratch[{times(first, rows)} + row] = {op.name};")
        finished += step.reduces
        if at == len(steps) + last - 1:
            if not elements:
                body.row_values([op for earlier in steps for op in earlier.rows], known)
            body.finish(known, " && ".join(filter(None, ["chunk == 0" if elements else "", "group == 0", inside])))
        found.append((body.take(), tiles * (chunks if elements else 1)))
    return found


def begin(tile: str, wide: int, rows: int, body: Body, chunk: str = "") -> None:
    """Declares the row and the group of a thread."""
    body.put(f"const int group = threadIdx.x / {wide};")
    if chunk:
        body.put(chunk)
    ragged = bool(rows % wide)
    body.put(f"const long {'mine' if ragged else 'row'} = {times(f'(long)({tile})', wide)} + threadIdx.x % {wide};")
    if ragged:
        body.put(f"const long row = {below('mine', rows)} ? mine : {end(rows - 1)};")


def whole(kernel: Kernel, shape: Shape, body: Body, slot: int) -> str:
    """Returns the position of a row's combined result in `scratch`."""
    return f"{sum(len(step.reduces) for step in body.plan.passes) * kernel.rows * shape.chunks + slot * kernel.rows} + row"


def join_chunks(op: Op, slot: int, rows: int, shape: Shape, wide: int, body: Body) -> None:
    """Declares a row's result, combined from the blocks' partial results. The groups share this work."""
    kind, start = ("double" if op.dtype == "float64" else "float"), ("0.0" if op.attr == "sum" else f"(double){START[op.attr]}")
    part = f"({shift(slot * shape.chunks)} + part)" if slot else "part"
    body.put(f"double {op.name}_joined = {start};")
    body.put("#pragma unroll 4")
    body.open(f"for (int part = group; part < {shape.chunks}; part += {shape.groups})")
    body.put(f"{op.name}_joined = {HOW[op.attr]}::join({op.name}_joined, scratch[{times(part, rows)} + row]);")
    body.close()
    joined = f"over_groups<{HOW[op.attr]}, {wide}, {shape.groups}>({op.name}_joined)"
    body.put(f"const {kind} {op.name} = {joined if kind == 'double' else f'(float){joined}'};")


def walk(step: Pass, kernel: Kernel, shape: Shape, body: Body, known: dict[str, str], inside: str) -> None:
    """Prints a thread's loop over its elements of the row, with several loads in flight."""
    flat = body.variables[kernel.inner[0]] if len(kernel.inner) == 1 else "at"
    body.put(f"#pragma unroll {shape.unroll or 4}")
    body.open(f"for (long {flat} = (long)chunk * {shape.groups} + group; {flat} < {kernel.length}; {flat} += {shape.chunks * shape.groups})")
    body.unravel(flat, kernel.inner, "long")
    body.statements(step, dict(known), {}, stored=inside if step.stores else "")
    body.close()


def scratch_floats(kernel: Kernel, shape: Shape, body: Body) -> int:
    """Returns the length of `scratch` in floats."""
    parts = shape.chunks + (shape.chunks > MOST_JOINED)
    return 2 * sum(len(step.reduces) for step in body.plan.passes) * kernel.rows * parts
