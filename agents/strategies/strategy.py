"""The definition of a strategy, and the facts that decide whether it applies."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass

from agents.strategies.how_to import how_tos
from verifier.profiling.diagnosing.structure import Structure

HOST_SETS_THE_PACE = 0.2  # share of a call in which the device waits for the host, above which reducing host work pays off in any class
HOST_IS_WORTH_A_METHOD = 0.03  # share of a call; a smaller gain cannot be distinguished from noise
BOTTLENECKS = ("memory", "compute", "latency", "launch", "occupancy", "defect", "none")


@dataclass(frozen=True)
class Facts:
    """Facts about a program on a device at the time when its next step is chosen. None means unknown."""

    device: str  # "cpu", "cuda"
    bottleneck: str
    precision: str = "fp32-strict"
    program_us: float | None = None
    headroom: float | None = None  # program time divided by its floor; 1 is the floor
    launches: float | None = None  # launches per call
    device_busy: float | None = None  # share of the wall time
    host_share: float | None = None  # share of a call during which the device is idle and waits for the host
    bandwidth_share: float | None = None  # minimum traffic divided by the traffic that the memory could carry in the program's time
    own_share: float | None = None  # share of the program's time spent in its own kernels
    static_shapes: bool = True
    reductions: bool | None = None  # the task reduces over rows
    products: bool | None = None  # the task has matrix products or convolutions
    reuse: bool | None = None  # data is used for more than one result, as in matrix products, filters, and rows that need several passes
    capability: tuple[int, int] | None = None  # compute capability
    on_tensor_cores: bool | None = None  # the slowest of the program's own kernels uses tensor cores
    scores: bool | None = None  # a softmax lies between two products
    registers_alone: bool | None = None  # registers alone limit the occupancy of the slowest of the program's own kernels
    registers: int | None = None  # registers per thread in the slowest of the program's own kernels
    structure: Structure | None = None  # shapes of the task's products, rows and sorts
    functions: bool | None = None  # the task has transcendental functions
    largest_bytes: int | None = None  # the task's largest tensor
    dependent_steps: int | None = None  # number of sequential steps of a recurrence
    units: int = 0  # multiprocessors or threads; 0 means unknown
    cache_bytes: int = 0  # the cache that all units share; 0 means unknown
    unit_cache_bytes: int = 0  # shared memory of a multiprocessor; 0 means unknown
    kernels: float | None = None  # kernels per call, including those inside a CUDA graph
    own_kernels: float | None = None  # the program's own kernels per call
    short_kernels: float | None = None  # kernels per call that are too short to hide launch latency
    library_products: bool | None = None  # a library computes a product
    gap_share: float | None = None  # share of a call in which the device waits between pieces of work
    slowest_blocks: int | None = None  # blocks in the grid of the slowest of the program's own kernels
    slowest_waves: float | None = None  # the same number divided by the number of blocks that can be resident at the same time
    quiet_memory: bool | None = None  # no kernel that takes at least a tenth of the device's time uses much DRAM bandwidth
    streams: bool | None = None  # a kernel that takes at least a tenth of the device's time uses much DRAM bandwidth, but is not at the ceiling
    selection_share: float | None = None  # share of the device's time spent in library kernels that select the largest elements (top-k)
    waits: float | None = None  # number of times the host waits for the device within a call
    faults: tuple[str, ...] = ()  # faults that the diagnosis names, most expensive first

    @property
    def waits_for_host(self) -> bool:
        return self.host_share is not None and self.host_share >= HOST_SETS_THE_PACE

    @property
    def has_host_gaps(self) -> bool:
        return self.host_share is not None and self.host_share >= HOST_IS_WORTH_A_METHOD


@dataclass(frozen=True)
class Strategy:
    """`when` states the condition under which the strategy pays off; `veto` returns the reason why it is not allowed, or None."""

    name: str
    title: str
    answers: tuple[str, ...]  # bottlenecks
    when: Callable[[Facts], bool]
    applies: str  # `when` in words, with the graph structure that the strategy requires
    expectation: str
    forbidden: str  # human-readable form of `veto`
    references: tuple[str, ...]
    veto: Callable[[Facts], str | None] = lambda facts: None
    devices: tuple[str, ...] = ("cpu", "cuda")
    cures: tuple[str, ...] = ()  # names of the diagnosed faults that the strategy fixes
    cures_when: Callable[[Facts], bool] = lambda facts: True  # decides which of several cures for a fault fits
    only_cures: bool = False  # useful only if its fault was diagnosed
    finishes: bool = False  # tunes a settled structure, so it waits until another method was tried
    mends: bool = False  # changes an existing kernel, so no plan can choose it before there is a program
    needs: str = ""  # a pattern that one of the task's operators must match; "" if it fits any task

    def meets(self, operators: Collection[str] | None) -> bool:
        """Returns whether a task with these operators ("aten.mm.default", or "matrix product") contains what the strategy needs. `operators` is None
        if they are unknown."""
        return not self.needs or operators is None or any(re.search(self.needs, operator) for operator in operators)

    @property
    def family(self) -> str:
        return how_tos()[self.name].family

    @property
    def cuda(self) -> str:
        """Instructions for CUDA C++: a few sentences that a coder can follow."""
        return how_tos()[self.name].cuda

    @property
    def triton(self) -> str:
        return how_tos()[self.name].triton

    @property
    def cpp(self) -> str:
        """Instructions for C++ on the CPU, or "" if the strategy is for GPUs only."""
        return how_tos()[self.name].cpp

    def refuses(self, facts: Facts) -> str | None:
        """Returns the reason why the strategy must not be tried now, or None if it may be."""
        if facts.device not in self.devices:
            return f"{self.name} is for {' and '.join(self.devices)} only"
        return self.veto(facts) or (None if self.when(facts) else f"{self.name} applies where {self.applies}")
