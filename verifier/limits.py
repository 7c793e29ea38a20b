"""Limits on a party's time and memory, in seconds and bytes. Tests and operators may set others."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace

GIB = 1 << 30


@dataclass(frozen=True)
class Limits:
    start: float = 60  # start of a sandboxed interpreter with torch imported
    load: float = 20  # import of a source and its constructor
    inputs: float = 15
    call: float = 20  # one forward call, and each later exchange
    oracle: float = 60  # one forward call in fp64
    build: float = 300  # import of a program in the builder, with its compilations
    compile_baseline: float = 180  # torch.compile's first call
    autotune: float = 180  # the same with max-autotune, after which reduce-overhead replaces it; 0: at once
    capture: float = 55
    admission: float = 50  # the whole job
    quick_timing: float = 4  # seconds spent on timed blocks
    full_timing: float = 8
    preempted: float = field(default_factory=lambda: float(os.environ.get("STITCH_MOST_PREEMPTED", "0.2")))  # share of calls: above, the host is busy
    correctness: float = 20  # no further trial starts after this
    memory: int = 8 * GIB
    builder: int = 3  # factor on `memory` for a builder, up to half of the host's: compilers take more than programs (CUTLASS: over 8 GiB)
    processes: int = 512
    file: int = 2 * GIB
    temporary: int = 2 * GIB  # private /tmp
    output: int = 64 * 1024  # kept bytes of stdout and stderr together
    output_flood: int = 64 * 1024 * 1024  # a party that writes more is killed

    def of_builder(self) -> Limits:
        """Returns the limits with a builder's memory."""
        host = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return replace(self, memory=max(self.memory, min(self.builder * self.memory, host // 2)))
