"""C++ kernel parameters that affect only the speed."""

from __future__ import annotations

from compiler.figures import DeviceFigures
from compiler.graph.ir import Kernel, product
from compiler.kernel.shape import Shape
from compiler.targets.target import Offered


def knobs_of(kernel: Kernel, shape: Shape, figures: DeviceFigures) -> Offered:
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
