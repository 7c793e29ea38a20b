"""The order of a kernel's loops, chosen by the lines of memory that it would touch, before anything is measured.

The model is that of cache reuse over a loop nest (M. Wolf and M. Lam, "A data locality optimizing algorithm", 1991): from the innermost loop
outwards, a loop that moves a tensor by less than a line, or not at all, finds its lines again where all that lies within it fits into the cache;
otherwise each of its turns brings lines of its own. The innermost loop always does. It is asked for several caches, whose lines cost more the
further away they come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

from compiler.graph.ir import SIZES, Kernel

LINE = 32  # bytes: a sector of a GPU, half a line of a CPU
# Bytes, and the cost of a line that has to come from beyond, relative: neighbours alone (what one instruction of a warp touches), the cache of a core
# or multiprocessor, and the one that all share.
CACHES = ((0, 1 / 4), (32 << 10, 1 / 3), (16 << 20, 1.0))
WORTH = 0.85  # of the present order's cost, above which the order stays
SIDE_BY_SIDE = 8  # bytes of the largest element
MOST_AXES = 5  # more, and the order stays: 120 orders are enough to look at


@dataclass(frozen=True)
class Walk:
    """How one access moves: bytes for a step along each axis. A line that is written in parts is read too: `weight` 2."""

    steps: tuple[int, ...]
    weight: float = 1.0


def ordered(kernel: Kernel) -> Kernel:
    """The kernel with its inner loops in the order that touches least memory; as it was, where that is not clearly better. Loops over rows keep
    their order, and so do running sums and positions, whose result depends on it."""
    axes = [axis for axis in kernel.inner if kernel.sizes[axis] > 1]
    if len(axes) < 2 or len(axes) > MOST_AXES or kernel.scans or any(op.kind == "coord" for op in kernel.ops.values()):
        return kernel
    walks = walks_of(kernel)
    if all(walk.steps[axes[-1]] <= SIDE_BY_SIDE for walk in walks):  # neighbours lie side by side for every tensor
        return kernel
    best = ranked(kernel.sizes, axes, walks)[0]
    if cost(kernel.sizes, best, walks) <= WORTH * cost(kernel.sizes, axes, walks):
        kernel.inner = [*(axis for axis in kernel.inner if axis not in axes), *best]
    return kernel


def ranked(sizes: Sequence[int], axes: Sequence[int], walks: Sequence[Walk]) -> list[tuple[int, ...]]:
    """All orders of the axes, the cheapest first; of equals the present one."""
    present = tuple(axes)
    return sorted(permutations(axes), key=lambda order: (cost(sizes, order, walks), order != present))


def cost(sizes: Sequence[int], order: Sequence[int], walks: Sequence[Walk]) -> float:
    """Bytes that have to come from beyond each cache, weighed."""
    return sum(weight * LINE * lines(sizes, order, walks, cache) for cache, weight in CACHES)


def lines(sizes: Sequence[int], order: Sequence[int], walks: Sequence[Walk], cache: int) -> float:
    """Lines that all accesses together bring into a cache over the whole nest; `order` ends with the innermost loop."""
    touched = [1.0] * len(walks)
    for depth, axis in enumerate(reversed(order)):
        fits = depth == 0 or sum(touched) * LINE <= cache
        for at, walk in enumerate(walks):
            step, turns = walk.steps[axis], sizes[axis]
            if not fits or step >= LINE:
                touched[at] *= turns
            elif step:
                touched[at] *= max(1.0, turns * step / LINE)
    return sum(walk.weight * count for walk, count in zip(walks, touched, strict=True))


def walks_of(kernel: Kernel) -> list[Walk]:
    found = {}
    stores = {id(store.access) for store in kernel.stores}
    for access in kernel.accesses():
        size = SIZES[kernel.arguments[access.argument].dtype]
        weight = 2.0 if id(access) in stores else 1.0
        found[access.argument, access.strides, weight] = Walk(tuple(abs(stride) * size for stride in access.strides), weight)
    return list(found.values())
