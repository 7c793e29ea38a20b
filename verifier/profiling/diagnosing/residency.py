"""Determines how many blocks of a kernel can be resident on a multiprocessor, and what limits them: registers, shared memory, block size, or the
grid."""

from __future__ import annotations

import math
from dataclasses import dataclass

from verifier.jobs import KernelProfile
from verifier.profiling.binaries.occupancy import LIMITS, WARP, occupancy
from verifier.profiling.nsight import counters

CARVE_OUT = "the shared memory that the driver set aside for this launch"
COUNTED = {"registers": "registers", "shared_mem": "shared memory", "warps": "block size", "blocks": "block slots"}
COMPUTED = {"registers": "registers", "shared memory": "shared memory", "warps": "block size", "blocks": "block slots"}


@dataclass(frozen=True)
class Residency:
    """`limits` gives the blocks per multiprocessor that each resource allows; `grid` and `threads` are the blocks of a launch and the threads of a
    block."""

    limits: dict[str, int]
    grid: int
    threads: int
    multiprocessors: int

    @property
    def allowed(self) -> int:
        return max(min(self.limits.values()), 1)

    @property
    def scarcest(self) -> tuple[str, ...]:
        """Returns all resources that allow the fewest blocks. More resident blocks would need more of each of them."""
        return tuple(name for name, blocks in self.limits.items() if blocks <= self.allowed)

    @property
    def resident(self) -> int:
        """Returns the number of blocks on the fullest multiprocessor."""
        return min(self.allowed, math.ceil(self.grid / self.multiprocessors))

    @property
    def by_grid(self) -> bool:
        """Returns whether the grid has fewer blocks than could be resident."""
        return self.resident < self.allowed

    @property
    def filled(self) -> float:
        """Returns the ratio of the grid's blocks to those that can be resident on the device; 1 or more means that the grid fills the device."""
        return self.grid / (self.allowed * self.multiprocessors)

    def why(self) -> str:
        """Describes what limits the resident blocks."""
        if self.by_grid:
            return self.short_grid()
        each = " each" if len(self.scarcest) > 1 else ""
        verb = "allow" if len(self.scarcest) > 1 or self.scarcest == ("registers",) else "allows"
        return f"{_joined(self.scarcest)}{each} {verb} {_blocks(self.allowed)} of {self.threads} threads a multiprocessor"

    def short_grid(self) -> str:
        """Describes how many blocks the grid has, and how many could be resident."""
        room = f"{self.allowed} could be resident on each"
        return f"the grid has {_blocks(self.grid)} of {self.threads} threads for {self.multiprocessors} multiprocessors, and {room}"

    def says(self) -> str:
        most = self.limits.get("block slots", math.inf)
        others = [f"{name} {blocks}" for name, blocks in self.limits.items() if name not in (*self.scarcest, "block slots") and blocks < most]
        room = f"; {', '.join(others)}" if others else ""
        bound = f"by the grid; {_joined(self.scarcest)} would allow {self.allowed}" if self.by_grid else f"by {_joined(self.scarcest)}"
        return f"resident blocks a multiprocessor: {self.resident} ({bound}{room}), {_waves(self.filled)} waves"


def residency(kernel: KernelProfile, multiprocessors: int, capability: tuple[int, int] | None) -> Residency | None:
    """Returns the residency from Nsight Compute's limits or, without counters, from the device's limits; null if neither is known. Nsight Compute
    counts only the shared memory that the driver set aside for the launch. The driver chooses that size according to what the other resources allow,
    so it counts as a limit only if it allows fewer blocks than all of them; otherwise, the hardware's own size is used as the limit."""
    if kernel.grid is None or kernel.block is None or multiprocessors < 1:
        return None
    grid, threads = math.prod(kernel.grid), math.prod(kernel.block)
    counted = {words: value for name, words in COUNTED.items() if (value := counters.read(kernel, counters.OCCUPANCY_LIMIT[name])) is not None}
    computed = _computed(kernel, threads, capability)
    limits = {name: int(value) for name, value in counted.items()} or computed
    if "shared memory" in counted and limits["shared memory"] < computed.get("shared memory", 0):
        set_aside, limits["shared memory"] = limits["shared memory"], computed["shared memory"]
        if set_aside < min(limits.values()):
            limits = {CARVE_OUT: set_aside, **limits}
    return Residency(limits, grid, threads, multiprocessors) if limits and grid and threads else None


def _computed(kernel: KernelProfile, threads: int, capability: tuple[int, int] | None) -> dict[str, int]:
    if capability is None or kernel.registers is None:
        return {}
    found = occupancy(10 * capability[0] + capability[1], threads, kernel.registers, kernel.shared_bytes or 0)
    return {COMPUTED[name]: blocks for name, blocks in found.limits.items()} if found is not None else {}


def most_threads(capability: tuple[int, int] | None) -> int:
    """Returns the maximum number of resident threads per multiprocessor; 2,048 if the architecture is unknown."""
    known = LIMITS.get(10 * capability[0] + capability[1]) if capability is not None else None
    return WARP * known.warps if known is not None else 2048


def _waves(count: float) -> str:
    return f"{count:.0f}" if count >= 10 else f"{count:.2g}"


def _blocks(count: int) -> str:
    return f"{count} block{'s' if count != 1 else ''}"


def _joined(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
