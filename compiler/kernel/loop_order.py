"""Chooses the order of a kernel's loops by estimating, without measurements, how many cache lines each order would touch.

It uses a model of cache reuse in loop nests (M. Wolf and M. Lam, "A data locality optimizing algorithm", 1991), which works outwards from the
innermost loop. A loop that advances through a tensor by less than a line, or not at all, reuses the tensor's lines if everything inside the loop fits
in the cache. Otherwise each iteration fetches new lines. The innermost loop always reuses its lines. The model is evaluated for several cache levels;
lines from more distant memory cost more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

from compiler.graph.ir import SIZES, Kernel

LINE = 32  # in bytes: a sector on a GPU, half a line on a CPU
# Cache sizes in bytes, and the relative cost of a line fetched from beyond that cache. The levels are: adjacent elements only (those that one warp
# instruction touches), the cache of a core or multiprocessor, and the shared cache.
CACHES = ((0, 1 / 4), (32 << 10, 1 / 3), (16 << 20, 1.0))
WORTH = 0.85  # largest cost of a new order, as a fraction of the current order's cost
SIDE_BY_SIDE = 8  # size of the largest element in bytes
MOST_AXES = 5  # with more axes, the order is kept; five axes already have 120 orders


@dataclass(frozen=True)
class Walk:
    """The strides of one access in bytes per step along each axis. A line that is written in parts is also read, so its `weight` is 2."""

    steps: tuple[int, ...]
    weight: float = 1.0


def ordered(kernel: Kernel) -> Kernel:
    """Reorders the kernel's inner loops to minimise memory traffic, unless the gain is unclear. Loops over rows keep their order. The order is also
    kept for running sums and for positions, because their results depend on it."""
    axes = [axis for axis in kernel.inner if kernel.sizes[axis] > 1]
    if len(axes) < 2 or len(axes) > MOST_AXES or kernel.scans or any(op.kind == "coord" for op in kernel.ops.values()):
        return kernel
    walks = walks_of(kernel)
    if all(walk.steps[axes[-1]] <= SIDE_BY_SIDE for walk in walks):  # the innermost axis is contiguous in every tensor
        return kernel
    best = ranked(kernel.sizes, axes, walks)[0]
    if cost(kernel.sizes, best, walks) <= WORTH * cost(kernel.sizes, axes, walks):
        kernel.inner = [*(axis for axis in kernel.inner if axis not in axes), *best]
    return kernel


def ranked(sizes: Sequence[int], axes: Sequence[int], walks: Sequence[Walk]) -> list[tuple[int, ...]]:
    """Returns all orders of the axes, cheapest first. If the current order is tied for cheapest, it comes first."""
    present = tuple(axes)
    return sorted(permutations(axes), key=lambda order: (cost(sizes, order, walks), order != present))


def cost(sizes: Sequence[int], order: Sequence[int], walks: Sequence[Walk]) -> float:
    """Returns the weighted number of bytes fetched from beyond each cache."""
    return sum(weight * LINE * lines(sizes, order, walks, cache) for cache, weight in CACHES)


def lines(sizes: Sequence[int], order: Sequence[int], walks: Sequence[Walk], cache: int) -> float:
    """Returns the number of lines that all accesses bring into a cache over the whole loop nest. The innermost loop is the last in `order`."""
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
