"""What a strategy is, and the facts by which it is judged."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass

from agents.strategies.how_to import how_tos

HOST_SETS_THE_PACE = 0.2  # share of a call in which the device waits for the host: from here on the host's work is worth a method, whatever the class
BOTTLENECKS = ("memory", "compute", "latency", "launch", "occupancy", "defect", "none")


@dataclass(frozen=True)
class Facts:
    """What is known of a program on a device when its next step is chosen. Null: not known."""

    device: str  # "cpu", "cuda"
    bottleneck: str
    precision: str = "fp32-strict"
    program_us: float | None = None
    headroom: float | None = None  # program time over its floor; 1 is the floor
    launches: float | None = None  # a call
    device_busy: float | None = None  # share of the wall time
    host_share: float | None = None  # of a call, in which the device has no work and waits for the host
    bandwidth_share: float | None = None  # least traffic over what the memory could carry in the program's time
    own_share: float | None = None  # of the program's time in its own kernels
    static_shapes: bool = True
    reductions: bool | None = None  # the task reduces over rows
    products: bool | None = None  # it has matrix products or convolutions
    reuse: bool | None = None  # a datum is used for more than one result: products, filters, rows with several passes
    capability: tuple[int, int] | None = None  # compute capability
    registers: int | None = None  # a thread, of the longest own kernel
    faults: tuple[str, ...] = ()  # that the diagnosis named, those that cost most first

    @property
    def waits_for_host(self) -> bool:
        return self.host_share is not None and self.host_share >= HOST_SETS_THE_PACE


@dataclass(frozen=True)
class Strategy:
    """`when` is what must hold for it to pay, `veto` what forbids it (a sentence) or null."""

    name: str
    title: str
    answers: tuple[str, ...]  # bottlenecks
    when: Callable[[Facts], bool]
    applies: str  # `when` for people, with what the graph has to look like
    expectation: str
    forbidden: str  # `veto` for people
    references: tuple[str, ...]
    veto: Callable[[Facts], str | None] = lambda facts: None
    devices: tuple[str, ...] = ("cpu", "cuda")
    cures: tuple[str, ...] = ()  # faults that it undoes, by the diagnosis's names
    cures_when: Callable[[Facts], bool] = lambda facts: True  # which of several cures fits
    only_cures: bool = False  # of no use where its fault was not named
    needs: str = ""  # a pattern that one of the task's operators has; "" where it is for any

    def meets(self, operators: Collection[str] | None) -> bool:
        """Whether a task with these operators ("aten.mm.default", or "matrix product") has what it is for; null: they are not known."""
        return not self.needs or operators is None or any(re.search(self.needs, operator) for operator in operators)

    @property
    def family(self) -> str:
        return how_tos()[self.name].family

    @property
    def cuda(self) -> str:
        """How to do it in CUDA C++: a few sentences that a coder can act on."""
        return how_tos()[self.name].cuda

    @property
    def triton(self) -> str:
        return how_tos()[self.name].triton

    @property
    def cpp(self) -> str:
        """In C++ on the CPU; "" where it is for GPUs only."""
        return how_tos()[self.name].cpp

    def refuses(self, facts: Facts) -> str | None:
        """Why it may not be tried now, or null."""
        if facts.device not in self.devices:
            return f"{self.name} is for {' and '.join(self.devices)} only"
        return self.veto(facts) or (None if self.when(facts) else f"{self.name} applies where {self.applies}")
