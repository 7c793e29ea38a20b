"""Decides how a kernel will run, based on its domain, the device and the options. This happens before the kernel is printed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from compiler.figures import DeviceFigures
from compiler.graph.ir import Kernel, product
from compiler.kernel import stripes
from compiler.kernel.schedule import schedule
from compiler.options import Options

Style = Literal["elements", "rows", "lanes", "stripes", "split", "columns", "scan"]


@dataclass(frozen=True)
class Shape:
    """How a kernel runs. `elements`: no reduction. `rows`: each thread or block processes one row at a time. `lanes`: each SIMD lane or GPU thread
    processes one row. `stripes`: like `lanes`, but for the lines of whole planes. `split`: there are few long rows, and all threads share each row.
    `columns`: like `split`, but for adjacent rows. `scan`: running sums."""

    style: Style
    parallel: bool = True
    stream: bool = False  # non-temporal stores
    cache: bool = True  # whether expensive values of a row are kept between passes
    lanes: int = 8  # number of rows whose running sums advance together (scan)
    threads: int = 256  # GPU: threads per block
    warp_rows: bool = False  # GPU: one row per warp
    vector: int = 8  # GPU: maximum number of elements per load if contiguous and aligned (4 floats or 8 elements of 16 bits)
    work: int = 1  # GPU, elements: loads in flight per thread
    unroll: int = 0  # GPU: unroll factor of the loop over a row; 0 means the compiler's choice
    chunks: int = 32  # GPU, split and columns: blocks per row
    cluster: int = 0  # GPU, rows: blocks per cluster that share a row and keep it in their shared memory; 0: kept in registers or not at all
    groups: int = 1  # GPU, lanes and columns: number of threads in a block that share each row
    held: int = 64  # GPU, lanes: number of row elements that a thread keeps in registers if more than one pass reads them
    tile: int = 4  # GPU, scan: number of neighbouring elements per thread and step
    resident: int = 0  # GPU: minimum blocks per multiprocessor, which limits the registers per thread; 0 means the compiler's choice
    workers: int = 0  # CPU: threads; 0: all
    chunk: int = 0  # CPU: iterations that a thread takes at a time; 0: equal shares
    simd: int = 0  # CPU: floats per SIMD step; 0 means the compiler's choice
    block: int = 512  # CPU: number of elements summed in single precision before the sum is added to a double
    line: int = 4096  # CPU: number of elements computed in the cache before non-temporal stores write them out

    def describe(self, cuda: bool) -> str:
        """Describes the launch shape or the loop structure."""
        if cuda:
            return {
                "elements": f"{'grid-stride loop, ' if self.work > 1 else ''}blocks of {self.threads} threads",
                "rows": f"one warp a row, {self.threads // 32} rows a block" if self.warp_rows else self._blocks(),
                "lanes": f"{'one thread' if self.groups == 1 else f'{self.groups} threads'} a row, blocks of {self.threads} threads",
                "stripes": f"one block of {self.threads} threads a plane of rows, which comes through shared memory in bulk copies",
                "split": f"each row shared by {self.chunks} blocks of {self.threads} threads",
                "columns": f"{self.threads // self.groups} rows side by side shared by {self.chunks} blocks of {self.threads} threads",
                "scan": f"one block of {self.threads} threads a row, tile by tile",
            }[self.style]
        return {
            "elements": "elements over threads and SIMD lanes",
            "rows": "rows over threads, the elements of a row over SIMD lanes",
            "lanes": "rows over threads and SIMD lanes",
            "split": "few long rows, each shared by all threads",
            "scan": f"{self.lanes} rows advance together in each thread",
        }[self.style] + (", written past the cache" if self.stream else "")

    def _blocks(self) -> str:
        if self.cluster > 1:
            return f"a cluster of {self.cluster} blocks of {self.threads} threads a row, which lies in their shared memory"
        return f"one block of {self.threads} threads a row" + (", which lies in its shared memory" if self.cluster else "")


IN_REGISTERS = 32 * 1024  # number of row elements that a block of 1024 threads can keep in registers
MOST_PARTS = 512  # maximum number of blocks per row (the next kernel combines their results) unless filling the device takes more
PARALLEL_WORK = 16384  # with fewer elements, a parallel region costs more than it saves


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
    """Returns the shape with the parameters that the options request. Every value is correct for every kernel; the values affect only the speed."""
    chosen: dict[str, Any] = {field: options.knob(name, group, getattr(shape, field)) for name, field in NUMBERS.items()}
    if shape.threads * chosen["resident"] > 2048:  # more threads than a multiprocessor can hold
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
    places = any(op.attr == "argmax" for op in kernel.ops.values())  # results of several blocks are combined as doubles, which rules out positions
    if options.on("channels-last", group) and side_by_side(kernel):
        if kernel.rows < figures.units * 32 and kernel.length > 1024 and not places:
            return _columns(kernel, figures, options, group)
        return replace(_lanes(kernel, figures, options, group, cache), held=32)  # a thread in a block of 1024 threads has only 64 registers
    if side_by_side(kernel) and kernel.rows < figures.units * 16 and kernel.length > 1024 and not places:
        return _columns(kernel, figures, options, group)  # otherwise only half of the device, or an eighth of each sector, would be used
    if stripes.fits(kernel, figures) and not options.knob("groups", group, 0):
        return Shape("stripes", threads=options.knob("block", group, 1024))
    if strided_rows(kernel) or windows_side_by_side(kernel):
        return _lanes(kernel, figures, options, group, cache)
    short = kernel.length <= 1024 and kernel.rows >= figures.units * 4
    if options.knob("warp-row", group, int(short)):
        return Shape("rows", cache=cache, threads=options.knob("block", group, 128), warp_rows=True)
    if not places and (options.on("parallel-split", group) or (kernel.rows < figures.units and kernel.length >= 1 << 14)):
        return _split(kernel, figures, options, group)
    if kernel.length > IN_REGISTERS and not places:
        return _long_rows(kernel, figures, options, group, cache)
    threads = 1024 if kernel.length >= 8192 else 512 if kernel.length >= 4096 else 256 if kernel.length >= 1024 else 128
    return Shape("rows", cache=cache, threads=options.knob("block", group, threads))


def _lanes(kernel: Kernel, figures: DeviceFigures, options: Options, group: str, cache: bool) -> Shape:
    """Lets several threads share a row if there are too few rows to fill the device, or if each thread's part then fits in registers."""
    groups, threads, again = 1, 256, bool(read_again(kernel))
    while (
        groups < 32
        and kernel.length >= groups * 8
        and (kernel.rows * groups < figures.units * 1024 or (again and 64 < kernel.length // groups <= 256))
    ):
        groups *= 2
    if not again and kernel.length >= 512 and groups < 8:
        groups, threads = 8, 1024  # keeps many lines of a narrow tile in flight, which is 15 % faster than one thread per row on an H200
    groups = options.knob("groups", group, groups)
    return Shape("lanes", cache=cache, threads=max(options.knob("block", group, threads), 32 * groups), groups=groups)


def _columns(kernel: Kernel, figures: DeviceFigures, options: Options, group: str) -> Shape:
    """Chooses as many rows per block as a warp has lanes, and just enough blocks to fill the device once, because each additional block adds a
    partial result to combine."""
    wide = 32 if kernel.rows >= 32 else 16 if kernel.rows >= 16 else 8
    threads = options.knob("block", group, 512)
    groups = threads // wide
    chunks = max(1, min(-(-figures.units * (2048 // threads) // -(-kernel.rows // wide)), kernel.length // (groups * 8)))
    return Shape("columns", cache=False, threads=threads, groups=groups, chunks=chunks)


def _split(kernel: Kernel, figures: DeviceFigures, options: Options, group: str) -> Shape:
    """Chooses enough blocks for several waves on the device, provided that each block has enough work to hide its start-up. Among such block counts,
    it chooses the one with the fullest last wave."""
    threads = options.knob("block", group, 256)
    slots = figures.units * max(1, 2048 // threads)  # concurrent blocks
    least = min(-(-slots * 3 // kernel.rows), kernel.length >> 13)
    most = max(1, least, min(slots * 16 // kernel.rows, kernel.length >> 15, MOST_PARTS))
    chunks = min(range(max(1, most // 2), most + 1), key=lambda count: (-(-kernel.rows * count // slots) * slots / (kernel.rows * count), -count))
    return Shape("split", cache=False, threads=threads, chunks=chunks)


def _long_rows(kernel: Kernel, figures: DeviceFigures, options: Options, group: str, cache: bool) -> Shape:
    """Handles rows that are too long for a block's registers. They are kept in the shared memory of a few blocks if that is necessary and there is
    enough of it."""
    arrays = len(read_again(kernel))
    bytes_of_row = 4 * kernel.length * arrays
    for blocks in (1, 2, 4, 8) if cache and bytes_of_row and (figures.capability or (0, 0)) >= (9, 0) else ():
        room = figures.unit_cache_bytes - 2048
        share = -(-bytes_of_row // blocks) + arrays * 16 * 1024  # includes padding for the last iteration of its threads
        if share <= room // 2 or (blocks == 8 and share <= room):
            blocks = options.knob("cluster", group, blocks)
            if kernel.rows * blocks * 4 >= figures.units * 3 or blocks == 8:
                threads = 512 if share <= room // 2 else 1024
                return Shape("rows", cache=cache, threads=options.knob("block", group, threads), cluster=blocks)
    if kernel.rows < figures.units * 8 or len(kernel.stores) and any(store.level == "full" for store in kernel.stores):
        return _split(kernel, figures, options, group)
    return Shape("rows", cache=cache, threads=options.knob("block", group, 1024))


def read_again(kernel: Kernel) -> set[str]:
    """Returns the loads of row elements that more than one pass reads."""
    seen: dict[str, int] = {}
    for step in schedule(kernel, cache=False).passes:
        for op in step.elements:
            if op.kind == "load" and op.level == "full":
                seen[op.name] = seen.get(op.name, 0) + 1
    return {name for name, passes in seen.items() if passes > 1}


def strided_rows(kernel: Kernel) -> bool:
    """Returns whether the rows are too short for SIMD or have neighbouring elements that are not contiguous."""
    if not kernel.outer:
        return False
    last = kernel.inner[-1] if kernel.inner else None
    if last is None or kernel.length <= 16:
        return True
    loads = [op.access for op in kernel.ops.values() if op.kind == "load" and op.level == "full"]
    return any(access.strides[last] > 1 for access in loads) and kernel.rows >= 64


def windows_side_by_side(kernel: Kernel) -> bool:
    """Returns whether the rows are windows with adjacent lines, in which case a warp reads the lines of 32 windows at a time."""
    if len(kernel.inner) < 2 or not kernel.outer or kernel.length > 256 or kernel.rows < 1 << 16:
        return False
    loads = [op.access for op in kernel.ops.values() if op.kind == "load" and op.level == "full"]
    last, width = kernel.inner[-1], kernel.sizes[kernel.inner[-1]]
    return width <= 32 and all(access.strides[last] == 1 and access.strides[kernel.outer[-1]] == width for access in loads)


def side_by_side(kernel: Kernel) -> bool:
    """Returns whether the elements of a row are strided and adjacent to the corresponding elements of the next row."""
    if not kernel.outer or not kernel.inner or kernel.rows < 8:
        return False
    loads = [op.access for op in kernel.ops.values() if op.kind == "load" and op.level == "full"]
    return any(access.strides[kernel.inner[-1]] > 1 and access.strides[kernel.outer[-1]] == 1 for access in loads)


def streams(kernel: Kernel) -> bool:
    """Returns whether the only output is a dense float tensor written element by element. No other case supports non-temporal stores."""
    full = [store for store in kernel.stores if store.level == "full"]
    if len(full) != 1 or not kernel.inner or kernel.arguments[full[0].access.argument].dtype != "float32":
        return False
    argument = kernel.arguments[full[0].access.argument]
    return not full[0].how and full[0].access.strides[kernel.inner[-1]] == 1 and not argument.read and kernel.sizes[kernel.inner[-1]] >= 256
