"""Chooses the counters that Nsight Compute collects, by section, and converts them to the names and units used in a `KernelProfile`.

Units are nanoseconds for times, bytes for sizes, hertz for frequencies and per cent for shares; all other values are plain counts. In addition to the
raw counters, the 24 that CudaForge selected (arXiv 2511.01884) are kept under their published names. Counters that current GPUs no longer have are
derived:

| published | here |
|---|---|
| `sm__inst_executed.sum` | `smsp__inst_executed.sum`: a multiprocessor's four partitions together |
| `sm__inst_executed_pipe_fp32...` | the pipe that does fp32, named `fma` since Volta |
| `sm__inst_executed_pipe_tensor...` | cycles in which the tensor pipe was active |
| `dram__throughput...` | `gpu__dram_throughput...` |
| `lts__throughput...active` | of elapsed cycles instead of active ones |
| `smsp__warp_issue_stalled_X_per_warp_active.pct` | the stall ratio of X over the sum of all of them |
| ... X = `memory_dependency` | `long_scoreboard` (NVIDIA's table from nvprof to ncu) |
"""

from __future__ import annotations

from typing import get_args

from verifier.jobs import Section
from verifier.profiling.nsight import counters

SECTIONS: dict[str, tuple[str, ...]] = {
    "speed-of-light": (
        *(counters.TIME, counters.SM_SHARE, counters.L1_SHARE, counters.L2_SHARE, *counters.SM_CYCLES.values(), counters.SM_CYCLES_ELAPSED),
        *("gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed", "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"),
    ),
    "memory": (
        *(counters.DRAM_READ, counters.DRAM_WRITE, "dram__bytes.sum.per_second", counters.L1_HITS, counters.L2_HITS, counters.LSU_WAVEFRONTS),
        *(*counters.GLOBAL_SECTORS.values(), *counters.GLOBAL_REQUESTS.values(), *counters.LOCAL_SECTORS.values()),
        *(*counters.SHARED_WAVEFRONTS.values(), *counters.BANK_CONFLICTS.values(), *counters.ATOMIC_SECTORS.values(), counters.ATOMIC_UNITS),
    ),
    "occupancy": (counters.OCCUPANCY, counters.OCCUPANCY_POSSIBLE, *counters.OCCUPANCY_LIMIT.values()),
    "launch": (counters.WAVES, counters.GRID, counters.BLOCK, counters.REGISTERS, counters.SHARED_BYTES),
    "stalls": tuple(counters.STALL.values()),
    "scheduler": (counters.ISSUE_SHARE, "smsp__issue_active.avg.per_cycle_active", "smsp__warps_eligible.avg.per_cycle_active"),
    "instructions": (
        *(counters.INSTRUCTIONS, counters.ACTIVE_THREADS, counters.UNPREDICATED_THREADS, counters.TENSOR_SHARE, counters.FP64_SHARE),
        *(*counters.PIPE.values(), counters.SHARED_ATOMICS),
    ),
    "source": (
        *(*counters.BYTES_PER_SECTOR.values(), *counters.LOCAL_INSTRUCTIONS.values(), *counters.SHARED_INSTRUCTIONS.values()),
        *(*counters.THREAD_OPS.values(), "smsp__sass_average_branch_targets_threads_uniform.pct"),
    ),
}
assert set(SECTIONS) == set(get_args(Section))

_STALL = "smsp__warp_issue_stalled_{}_per_warp_active.pct"
# Maps each published name to the source of its value; a stall is listed under the name of its ratio.
CUDAFORGE: dict[str, str] = {
    "sm__cycles_active.avg": "sm__cycles_active.avg",
    "sm__warps_active.avg.pct_of_peak_sustained_active": counters.OCCUPANCY,
    "launch__occupancy_limit_blocks": counters.OCCUPANCY_LIMIT["blocks"],
    "launch__occupancy_limit_registers": counters.OCCUPANCY_LIMIT["registers"],
    "launch__occupancy_limit_shared_mem": counters.OCCUPANCY_LIMIT["shared_mem"],
    "launch__registers_per_thread": counters.REGISTERS,
    "sm__inst_executed.sum": counters.INSTRUCTIONS,
    "sm__inst_executed_pipe_fp32.avg.pct_of_peak_sustained_active": counters.PIPE["fma"],
    "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active": counters.TENSOR_SHARE,
    "dram__bytes_read.sum": counters.DRAM_READ,
    "dram__bytes_write.sum": counters.DRAM_WRITE,
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "dram__bytes.sum.per_second": "dram__bytes.sum.per_second",
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "l1tex__t_sector_hit_rate.pct": counters.L1_HITS,
    "l1tex__throughput.avg.pct_of_peak_sustained_active": counters.L1_SHARE,
    "lts__t_sector_hit_rate.pct": counters.L2_HITS,
    "lts__throughput.avg.pct_of_peak_sustained_active": counters.L2_SHARE,
    _STALL.format("memory_dependency"): counters.STALL["long_scoreboard"],
    _STALL.format("short_scoreboard"): counters.STALL["short_scoreboard"],
    _STALL.format("long_scoreboard"): counters.STALL["long_scoreboard"],
    _STALL.format("barrier"): counters.STALL["barrier"],
    _STALL.format("branch_resolving"): counters.STALL["branch_resolving"],
    "smsp__sass_average_branch_targets_threads_uniform.pct": "smsp__sass_average_branch_targets_threads_uniform.pct",
}

_SCALE = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_TIME = {"s": 1e9, "second": 1e9, "ms": 1e6, "msecond": 1e6, "us": 1e3, "usecond": 1e3, "ns": 1.0, "nsecond": 1.0}


def requested(sections: list[Section]) -> list[str]:
    """Returns the counters of these sections (all sections if none is named) and those from which the 24 are computed, excluding the derived names,
    which no GPU supports."""
    chosen = [name for section in (sections or SECTIONS) for name in SECTIONS[section]]
    needed = [*CUDAFORGE.values(), *counters.STALL.values()]
    return list(dict.fromkeys([*chosen, *needed]))


def normal(value: str, unit: str) -> float | None:
    """Converts a number printed by Nsight Compute to the units above; null if it printed none."""
    try:
        number = float(value.replace(",", ""))
    except ValueError:
        return None
    if number != number or abs(number) == float("inf"):
        return None
    above = unit.partition("/")[0]
    if above in _TIME:
        return number * _TIME[above]
    for word in ("byte", "hz"):
        if above.lower().endswith(word):
            return number * _SCALE.get(above[: -len(word)].upper(), 1.0)
    return number


def completed(metrics: dict[str, float]) -> dict[str, float]:
    """Adds the published names whose inputs were measured."""
    found = dict(metrics)
    stalls = [metrics[name] for name in counters.STALL.values() if name in metrics]
    for name, source in CUDAFORGE.items():
        if name in found or source not in metrics:
            continue
        if source in counters.STALL.values():
            if sum(stalls) > 0:
                found[name] = 100.0 * metrics[source] / sum(stalls)
        else:
            found[name] = metrics[source]
    return found
