"""Limits on a party's time and memory, in seconds and bytes. Tests and operators may override them."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace

GIB = 1 << 30
LEAST_MEMORY, MOST_MEMORY = 8 * GIB, 64 * GIB
PARTIES = 8  # maximum number of parties that hold a model in host memory at the same time


def host_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def memory_of_party() -> int:
    """Returns the bytes that a party may use on this host. Models are constructed on the host, so two billion parameters in fp32 need more than 8
    GiB."""
    return max(LEAST_MEMORY, min(MOST_MEMORY, host_memory() // PARTIES))


@dataclass(frozen=True)
class Limits:
    start: float = 60  # starting a sandboxed interpreter and importing torch
    load: float = 20  # importing a source and running its constructor
    inputs: float = 15
    call: float = 20  # one forward call, and also each later exchange
    oracle: float = 60  # one forward call in fp64
    build: float = 300  # importing a program in the builder, including its compilations
    compile_baseline: float = 180  # first call of torch.compile
    autotune: float = 180  # first call with max-autotune; after this time, reduce-overhead replaces it; 0 means immediately
    capture: float = 55
    admission: float = 50  # the whole job
    quick_timing: float = 4  # seconds spent on timed blocks
    full_timing: float = 8
    preempted: float = field(default_factory=lambda: float(os.environ.get("STITCH_MOST_PREEMPTED", "0.2")))  # maximum share of preempted calls
    correctness: float = 20  # no further trial starts after this time
    memory: int = field(default_factory=memory_of_party)
    builder: int = 3  # multiple of `memory` for a builder, up to half of host memory, because compilers need more than programs (CUTLASS: over 8 GiB)
    processes: int = 512
    file: int = 2 * GIB
    temporary: int = 2 * GIB  # private /tmp
    output: int = 64 * 1024  # total number of bytes of stdout and stderr that are kept
    output_flood: int = 64 * 1024 * 1024  # a party that writes more than this is killed

    def of_builder(self) -> Limits:
        """Returns the limits with a builder's memory limit."""
        return replace(self, memory=max(self.memory, min(self.builder * self.memory, host_memory() // 2)))
