"""How a kernel runs: decided from its domain, the device and the options, before a line of it is printed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from agents.compiler.figures import DeviceFigures
from agents.compiler.ir import Kernel, product
from agents.compiler.options import Options

Style = Literal["elements", "rows", "lanes", "split", "scan"]


@dataclass(frozen=True)
class Shape:
    """`elements`: no reduction. `rows`: one row at a time in each thread or block. `lanes`: one row in each SIMD lane or GPU thread.
    `split`: few long rows, each shared by all threads. `scan`: running sums."""

    style: Style
    parallel: bool = True
    stream: bool = False  # non-temporal stores
    cache: bool = True  # keep dear values of a row between passes
    lanes: int = 8  # rows whose running sums advance together (scan)
    threads: int = 256  # GPU: threads of a block
    warp_rows: bool = False  # GPU: one row in each warp
    vector: int = 4  # GPU: floats that one load takes, where they lie side by side and aligned (1 or 4)
    work: int = 1  # GPU, elements: loads in flight a thread
    unroll: int = 0  # GPU: steps of the loop over a row that are unrolled; 0: the compiler's choice
    chunks: int = 32  # GPU, split: blocks that share a row
    tile: int = 4  # GPU, scan: neighbouring elements a thread takes at once
    resident: int = 0  # GPU: blocks that a multiprocessor is to hold, which bounds the registers of a thread; 0: the compiler's choice
    workers: int = 0  # CPU: threads; 0: all
    chunk: int = 0  # CPU: iterations that a thread takes at once; 0: each thread one equal part
    simd: int = 0  # CPU: floats in a SIMD step; 0: the compiler's choice
    block: int = 512  # CPU: elements summed in single precision before they join a double
    line: int = 4096  # CPU: elements finished in the cache before they are written past it

    def describe(self, cuda: bool) -> str:
        """The launch shape or loop structure in words."""
        if cuda:
            return {
                "elements": f"grid-stride loop, blocks of {self.threads} threads",
                "rows": f"one warp a row, {self.threads // 32} rows a block" if self.warp_rows else f"one block of {self.threads} threads a row",
                "lanes": f"one thread a row, blocks of {self.threads} threads",
                "split": f"each row shared by many blocks of {self.threads} threads",
                "scan": f"one block of {self.threads} threads a row, tile by tile",
            }[self.style]
        return {
            "elements": "elements over threads and SIMD lanes",
            "rows": "rows over threads, the elements of a row over SIMD lanes",
            "lanes": "rows over threads and SIMD lanes",
            "split": "few long rows, each shared by all threads",
            "scan": f"{self.lanes} rows advance together in each thread",
        }[self.style] + (", written past the cache" if self.stream else "")


PARALLEL_WORK = 16384  # elements below which a parallel region costs more than it gives


def shape_of(kernel: Kernel, figures: DeviceFigures, options: Options, group: str) -> Shape:
    work = product(kernel.sizes)
    cache = options.on("row-cache", group)
    shape = _cpu(kernel, figures, options, group, work, cache) if figures.kind == "cpu" else _cuda(kernel, figures, options, group, cache)
    return _numbers(shape, options, group)


NUMBERS = {  # knob: field of Shape
    "vector": "vector", "work": "work", "unroll": "unroll", "row-blocks": "chunks", "tile": "tile", "resident-blocks": "resident",
    "threads": "workers", "chunk": "chunk", "simd": "simd", "sum-block": "block", "line": "line",
}  # fmt: skip


def _numbers(shape: Shape, options: Options, group: str) -> Shape:
    """The shape with the numbers that the options ask for; each is correct for every kernel, whatever it does to its speed."""
    chosen = {field: options.knob(name, group, getattr(shape, field)) for name, field in NUMBERS.items()}
    chosen["chunks"] = min(chosen["chunks"], shape.threads)
    if shape.threads * chosen["resident"] > 2048:  # more threads than a multiprocessor holds
        chosen["resident"] = 0
    return replace(shape, **chosen)


def _cpu(kernel: Kernel, figures: DeviceFigures, options: Options, group: str, work: int, cache: bool) -> Shape:
    parallel = work >= PARALLEL_WORK and figures.units > 1
    stream = options.on("non-temporal-stores", group) and streams(kernel)
    if not kernel.reduces:
        return Shape("elements", parallel, stream)
    if kernel.scans:
        lanes = next(n for n in (options.knob("scan-rows", group, 8), 4, 2, 1) if kernel.rows % n == 0)
        return Shape("scan", parallel, lanes=lanes)
    if strided_rows(kernel):
        return Shape("lanes", parallel)
    if kernel.rows < figures.units and parallel or options.on("parallel-split", group):
        return Shape("split", parallel, cache=False)
    return Shape("rows", parallel and kernel.rows > 1, stream, cache)


def _cuda(kernel: Kernel, figures: DeviceFigures, options: Options, group: str, cache: bool) -> Shape:
    if not kernel.reduces:
        return Shape("elements", threads=options.knob("block", group, 256))
    if kernel.scans:
        return Shape("scan", threads=options.knob("block", group, 256 if kernel.length > 1024 else 128))
    if strided_rows(kernel):
        return Shape("lanes", threads=options.knob("block", group, 256))
    short = kernel.length <= 1024 and kernel.rows >= figures.units * 4
    if options.knob("warp-row", group, int(short)):
        return Shape("rows", cache=cache, threads=options.knob("block", group, 128), warp_rows=True)
    if options.on("parallel-split", group) or (kernel.rows < figures.units and kernel.length >= 1 << 14):
        return Shape("split", cache=False, threads=options.knob("block", group, 256))
    threads = 1024 if kernel.length >= 8192 else 512 if kernel.length >= 4096 else 256 if kernel.length >= 1024 else 128
    return Shape("rows", cache=cache, threads=options.knob("block", group, threads))


def strided_rows(kernel: Kernel) -> bool:
    """Rows too short for SIMD, or whose neighbouring elements do not lie side by side."""
    if not kernel.outer:
        return False
    last = kernel.inner[-1] if kernel.inner else None
    if last is None or kernel.length <= 16:
        return True
    loads = [op.access for op in kernel.ops.values() if op.kind == "load" and op.level == "full"]
    return any(access.strides[last] > 1 for access in loads) and kernel.rows >= 64


def streams(kernel: Kernel) -> bool:
    """One dense float output, written element by element: the form in which non-temporal stores are printed."""
    full = [store for store in kernel.stores if store.level == "full"]
    if len(full) != 1 or not kernel.inner or kernel.ops[full[0].op].dtype != "float32":
        return False
    argument = kernel.arguments[full[0].access.argument]
    return full[0].access.strides[kernel.inner[-1]] == 1 and not argument.read and kernel.sizes[kernel.inner[-1]] >= 256
