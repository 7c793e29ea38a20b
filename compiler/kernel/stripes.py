"""Which reductions over the lines of planes read them as whole stretches of memory (printed by cuda_stripes.py), and in what stages."""

from __future__ import annotations

from math import gcd

from compiler.figures import DeviceFigures
from compiler.graph.ir import Kernel, product
from compiler.kernel.schedule import schedule

STAGES = 3
STAGE_BYTES = 68 << 10  # at most: with three of them and some room a block fills the shared memory of a multiprocessor
LEAST_BYTES = 8 << 10  # of a stage that is worth its barrier
MOST_COLUMNS = 8  # of a thread
FULL = 0.75  # of the device's rounds that the planes fill at least


def stage_lines(kernel: Kernel) -> int:
    """Lines of a stage: as many as fit, whose bytes are whole parts of 16; 0 where the kernel is none of this kind."""
    loads = [op for op in kernel.ops.values() if op.kind == "load" and op.level == "full"]
    if len(loads) != 1 or len(kernel.inner) != 1 or len(kernel.outer) < 2 or any(store.level == "full" for store in kernel.stores):
        return 0
    access, line, column = loads[0].access, kernel.inner[0], kernel.outer[-1]
    width, argument = kernel.sizes[column], kernel.arguments[access.argument]
    planes = [access.strides[axis] for axis in kernel.outer[:-1]]
    if argument.dtype != "float32" or access.index or (access.strides[column], access.strides[line]) != (1, width):
        return 0
    if (access.offset + argument.shift) % 4 or any(stride % 4 for stride in planes):  # a shift moves parts of an offset into the pointer
        return 0
    steps = schedule(kernel, cache=False).passes
    if len(steps) > 1 or steps[0].rows or any(op.dtype == "float64" for op in steps[0].reduces):
        return 0
    together = 4 // gcd(width, 4)  # lines that begin aligned
    most = STAGE_BYTES // (4 * width)
    found = [count for count in range(together, most + 1, together) if kernel.length % count == 0]
    return found[-1] if found and found[-1] * width * 4 >= LEAST_BYTES else 0


def fits(kernel: Kernel, figures: DeviceFigures) -> bool:
    """Whether the planes are blocks enough, and as wide as a block has threads."""
    if (figures.capability or (0, 0)) < (9, 0) or not stage_lines(kernel):
        return False
    planes, width = product(kernel.sizes[axis] for axis in kernel.outer[:-1]), kernel.sizes[kernel.outer[-1]]
    rounds = -(-planes // figures.units)
    return 1024 <= width <= 1024 * MOST_COLUMNS and planes >= FULL * rounds * figures.units and kernel.length // stage_lines(kernel) > 2 * STAGES


def stages_bytes(kernel: Kernel) -> int:
    """Of shared memory."""
    return STAGES * stage_lines(kernel) * kernel.sizes[kernel.outer[-1]] * 4
