"""Chooses how a Triton kernel runs: blocks, rows per program and warps. The choice depends on the kernel's domain, the device and the options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from compiler.figures import DeviceFigures
from compiler.graph.ir import Kernel, product
from compiler.options import Options

Style = Literal["elements", "rows", "split", "scan"]
RESIDENT = 16384  # number of row elements that a program holds at a time, unless the options specify another number
LARGEST = 65536  # elements per block; larger blocks take minutes to compile and spill every value
EACH = 16  # block elements per thread
MOST_EACH = 64  # number of block elements per thread above which registers spill
LONG_ROW = 1 << 14  # minimum row length at which several programs per row pay off


@dataclass(frozen=True)
class TritonShape:
    """Execution plan by style. `elements`: no reduction. `rows`: each program processes `rows` rows, each as a whole if `block` covers a row,
    otherwise block by block. `split`: there are few long rows, and `chunks` programs share each row. `scan`: running sums. Blocks, rows and chunks
    are powers of two."""

    style: Style
    block: int
    rows: int = 1
    warps: int = 4
    unroll: int = 1  # number of concurrent blocks in a loop over a row
    chunks: int = 1
    cache: bool = False  # each pass over a long row recomputes expensive values, and whole rows stay in registers anyway
    stream: bool = False  # no store bypasses the cache

    @property
    def flat(self) -> bool:
        """True if a program has only one row, so that its blocks have only one axis."""
        return self.rows == 1

    def describe(self, cuda: bool = True) -> str:
        """Describes the launch shape in words."""
        rows = f"{self.rows} rows" if self.rows > 1 else "one row"
        return {
            "elements": f"blocks of {self.block}, {self.warps} warps",
            "rows": f"{rows} a program, in blocks of {self.block}, {self.warps} warps",
            "split": f"{rows} shared by {self.chunks} programs, in blocks of {self.block}, {self.warps} warps",
            "scan": f"{rows} a program, scanned in blocks of {self.block}, {self.warps} warps",
        }[self.style]


def triton_shape_of(kernel: Kernel, figures: DeviceFigures, options: Options, group: str) -> TritonShape:
    def knob(name: str, default: int) -> int:
        return options.knob(name, group, default)

    if not kernel.reduces:
        block = min(knob("block", 1024), LARGEST, ceiling(product(kernel.sizes)))
        return TritonShape("elements", block, warps=knob("warps", 4))
    whole = ceiling(kernel.length)
    side_by_side = rows_side_by_side(kernel)
    if side_by_side:
        rows = min(64, ceiling(kernel.rows))
        block = whole if whole * rows <= RESIDENT else min(whole, 4096 // rows)
    else:
        block = whole if whole <= RESIDENT else 4096
        rows = max(1, min(2048 // block, 128, ceiling(kernel.rows)))
    while rows > (16 if side_by_side else 1) and -(-kernel.rows // rows) < figures.units * 2:
        rows //= 2
    block = min(knob("block", block), LARGEST, whole)
    rows = min(knob("rows", rows), ceiling(kernel.rows)) if kernel.outer else 1
    while rows * block > LARGEST // 2 and rows > 1:
        rows //= 2
    warps = knob("warps", max(1, min(16, rows * block // (32 * EACH))))
    programs = -(-kernel.rows // rows)
    style: Style = "scan" if kernel.scans else "rows"
    if style == "rows" and (options.on("parallel-split", group) or (programs < figures.units and kernel.length >= LONG_ROW)):
        block = min(block, 4096 // rows or 1)
        wanted = min(ceiling(figures.units * 4 // programs + 1), 1024, ceiling(max(1, kernel.length // (block * 2))))
        chunks = max(1, min(knob("row-blocks", wanted), 1024))
        return TritonShape("split", block, rows, min(warps, 8), knob("unroll", 1), chunks)
    return TritonShape(style, block, rows, warps, knob("unroll", 1))


def knobs_of(kernel: Kernel, shape: TritonShape) -> dict[str, tuple[tuple[int, ...], int]]:
    """Returns the parameters that affect only the speed: name -> (values worth trying, current value)."""
    if shape.style == "elements":
        blocks = tuple(n for n in (256, 512, 1024, 2048, 4096) if n <= ceiling(product(kernel.sizes)))
        return {"block": (blocks, shape.block), "warps": ((2, 4, 8), shape.warps)}
    whole = ceiling(kernel.length)
    sizes = {n for n in (shape.block // 4, shape.block // 2, shape.block, shape.block * 2, shape.block * 4) if 1 <= n <= min(whole, LARGEST)}
    if shape.flat:
        sizes |= {n for n in (1024, 2048, 4096, 8192) if n <= whole} | ({whole} if whole <= LARGEST else set())
    if shape.style == "split":
        sizes = {n for n in sizes if n * shape.rows <= 4096}
    warps = tuple(n for n in (1, 2, 4, 8, 16, 32) if shape.rows * shape.block <= n * 32 * MOST_EACH) or (32,)
    found = {"block": (tuple(sorted(sizes)), shape.block), "warps": (warps, shape.warps)}
    if kernel.outer and shape.style != "split":
        room = max(shape.rows, shape.warps * 32 * MOST_EACH // shape.block)
        found["rows"] = (tuple(n for n in (1, 2, 4, 8, 16, 32, 64, 128) if n <= min(room, ceiling(kernel.rows))), shape.rows)
    if shape.block < kernel.length and shape.style != "scan":
        found["unroll"] = ((1, 2, 4), shape.unroll)
    if shape.style == "split":
        found["warps"] = ((2, 4, 8), shape.warps)
        found["row-blocks"] = (tuple(n for n in (4, 8, 16, 32, 64, 128, 256, 512, 1024) if n * shape.block <= kernel.length), shape.chunks)
    return found


def rows_side_by_side(kernel: Kernel) -> bool:
    """True if elements that are neighbours in memory belong to neighbouring rows."""
    if not kernel.outer or not kernel.inner:
        return False
    loads = [op.access.strides for op in kernel.ops.values() if op.kind == "load" and op.level == "full"]
    return any(strides[kernel.outer[-1]] == 1 and strides[kernel.inner[-1]] != 1 for strides in loads)


def ceiling(count: int) -> int:
    """Returns the smallest power of two that is not less than `count`."""
    return 1 << max(count - 1, 0).bit_length()
