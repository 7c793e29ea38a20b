"""Determines which reductions over the lines of planes can read the lines as contiguous stretches of memory, and in which stages.
targets/cuda/stripes.py prints them."""

from __future__ import annotations

from math import gcd

from compiler.figures import DeviceFigures
from compiler.graph.ir import Kernel, product
from compiler.kernel.schedule import schedule

STAGES = 3
STAGE_BYTES = 68 << 10  # maximum; with three stages and some headroom, a block fills the shared memory of a multiprocessor
LEAST_BYTES = 8 << 10  # minimum size of a stage that justifies its barrier
MOST_COLUMNS = 8  # per thread
FULL = 0.75  # minimum fraction of all waves of blocks that the planes must fill


def stage_lines(kernel: Kernel) -> int:
    """Returns the number of lines per stage: as many as fit such that their total size is a multiple of 16 bytes. Returns 0 if the kernel is not of
    this kind."""
    loads = [op for op in kernel.ops.values() if op.kind == "load" and op.level == "full"]
    if len(loads) != 1 or len(kernel.inner) != 1 or len(kernel.outer) < 2 or any(store.level == "full" for store in kernel.stores):
        return 0
    access, line, column = loads[0].access, kernel.inner[0], kernel.outer[-1]
    width, argument = kernel.sizes[column], kernel.arguments[access.argument]
    planes = [access.strides[axis] for axis in kernel.outer[:-1]]
    if argument.dtype != "float32" or access.index or (access.strides[column], access.strides[line]) != (1, width):
        return 0
    if (access.offset + argument.shift) % 4 or any(stride % 4 for stride in planes):  # shifting moves part of an offset into the pointer
        return 0
    steps = schedule(kernel, cache=False).passes
    if len(steps) > 1 or steps[0].rows or any(op.dtype == "float64" for op in steps[0].reduces):
        return 0
    together = 4 // gcd(width, 4)  # lines between aligned starts
    most = STAGE_BYTES // (4 * width)
    found = [count for count in range(together, most + 1, together) if kernel.length % count == 0]
    return found[-1] if found and found[-1] * width * 4 >= LEAST_BYTES else 0


def fits(kernel: Kernel, figures: DeviceFigures) -> bool:
    """Returns whether there are enough planes to fill the device with one block per plane, and whether each plane is at least as wide as a block has
    threads."""
    if (figures.capability or (0, 0)) < (9, 0) or not stage_lines(kernel):
        return False
    planes, width = product(kernel.sizes[axis] for axis in kernel.outer[:-1]), kernel.sizes[kernel.outer[-1]]
    rounds = -(-planes // figures.units)
    return 1024 <= width <= 1024 * MOST_COLUMNS and planes >= FULL * rounds * figures.units and kernel.length // stage_lines(kernel) > 2 * STAGES


def stages_bytes(kernel: Kernel) -> int:
    """Returns the shared memory of all stages in bytes."""
    return STAGES * stage_lines(kernel) * kernel.sizes[kernel.outer[-1]] * 4
