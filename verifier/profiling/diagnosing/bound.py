"""Classifies what limits one kernel, based on its two speed-of-light figures. The class is a coarse label for tables. To diagnose whole programs, use
`diagnosis.py`."""

from __future__ import annotations

from typing import Literal

from verifier.jobs import KernelProfile
from verifier.profiling.nsight import counters

Bound = Literal["memory", "compute", "occupancy", "latency", ""]
MEMORY_SHARE = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"
BUSY = 60.0  # per cent of a peak above which a unit is the bottleneck, according to Nsight Compute's "SpeedOfLight" rule
FEW_WARPS = 25.0  # per cent of the maximum resident warps, active on average
FEW_BLOCKS = 1.0  # in waves


def bound(kernel: KernelProfile) -> Bound:
    """Returns the class, or "" if there are no counters."""
    compute, memory = counters.read(kernel, counters.SM_SHARE), counters.read(kernel, MEMORY_SHARE)
    if compute is None or memory is None:
        return ""
    if max(compute, memory) >= BUSY:
        return "memory" if memory >= compute else "compute"
    active, waves = counters.read(kernel, counters.OCCUPANCY), counters.read(kernel, counters.WAVES)
    if (active is not None and active < FEW_WARPS) or (waves is not None and waves < FEW_BLOCKS):
        return "occupancy"
    return "latency"
