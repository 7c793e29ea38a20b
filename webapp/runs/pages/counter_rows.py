"""Prepares the hardware counters of a program's kernels for the page, with one row per kernel and a note on anything that was not measured."""

from __future__ import annotations

from dataclasses import dataclass

from verifier.jobs import KernelProfile, Profile
from verifier.profiling.diagnosing.bound import Bound, bound
from verifier.profiling.nsight import counters

SHOWN = 8
DRAM = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"
_MEANS = {
    "memory": "the memory system is at 60 % of its peak or more",
    "compute": "the multiprocessors are at 60 % of their peak or more",
    "occupancy": "neither peak is near, and too few warps are active",
    "latency": "neither peak is near, although enough warps are active: they wait",
}
_STALLS = {
    "long_scoreboard": "global memory",
    "short_scoreboard": "shared memory or special functions",
    "barrier": "a barrier",
    "wait": "a fixed latency",
    "not_selected": "another warp's turn",
    "math_pipe_throttle": "the arithmetic pipe",
    "lg_throttle": "too many memory requests",
    "mio_throttle": "too many shared-memory requests",
    "no_instruction": "instructions to be fetched",
    "branch_resolving": "a branch",
    "imc_miss": "constants",
    "drain": "stores to leave",
    "dispatch_stall": "the dispatcher",
    "membar": "a memory fence",
    "tex_throttle": "the texture unit",
    "sleeping": "nothing: it sleeps",
}


@dataclass(frozen=True)
class CounterRow:
    """One kernel's counters. Shares are fractions from 0 to 1, or null if they were not measured."""

    name: str
    own: bool
    share: float
    bound: Bound
    means: str
    dram: float | None
    compute: float | None
    occupancy: float | None
    possible: float | None
    limit: str
    registers: int | None
    spills: int | None  # from the compiled code: bytes spilled to local memory per thread; from counters: sectors per launch
    spilled: bool
    stall: str
    stall_share: float | None


def counter_rows(profile: Profile | None) -> list[CounterRow]:
    """Return the longest-running kernels, limited to those for which more than the duration is known. The program's own kernels come first among
    equals."""
    if profile is None:
        return []
    known = [kernel for kernel in profile.kernels if kernel.metrics or kernel.resources or kernel.occupancy_possible is not None]
    return [_row(kernel) for kernel in sorted(known, key=lambda kernel: (-kernel.share, not kernel.own))[:SHOWN]]


def counters_by_kernel(profile: Profile | None) -> dict[str, list[tuple[str, str]]]:
    """Return a description of each kernel's counters, keyed by kernel name. Kernels without known counters are left out."""
    found = {kernel.name: _said(_row(kernel)) for kernel in (profile.kernels if profile else [])}
    return {name: pairs for name, pairs in found.items() if pairs}


def _said(row: CounterRow) -> list[tuple[str, str]]:
    def share(value: float | None) -> str:
        return "" if value is None else f"{100 * value:.0f} %"

    possible = f" of {share(row.possible)} possible" if row.possible is not None and row.occupancy is not None else ""
    pairs = [
        ("bound by", f"{row.bound}: {row.means}" if row.means else ""),
        ("memory", f"{share(row.dram)} of its peak" if row.dram is not None else ""),
        ("multiprocessors", f"{share(row.compute)} of their peak" if row.compute is not None else ""),
        ("occupancy", share(row.occupancy) + possible if row.occupancy is not None else f"{share(row.possible)} possible" if row.possible else ""),
        ("occupancy is limited by", row.limit),
        ("most stalls wait for", f"{row.stall} ({share(row.stall_share)})" if row.stall else ""),
        ("spilled to local memory", f"{row.spills:,} B a thread" if row.spills else ""),
    ]
    return [(name, text) for name, text in pairs if text]


def not_measured(profile: Profile | None) -> str:
    """Return why there are no counters, or which kernels lack them, or "" if nothing is missing."""
    if profile is None or (profile.counters_tool and not profile.counters_reason):
        return ""
    return profile.counters_reason or "this profile is older than hardware counters"


def _row(kernel: KernelProfile) -> CounterRow:
    word = bound(kernel)
    stall = next(((name, share) for name, share in kernel.stalls.items() if name not in ("selected", "not_selected")), None)
    sectors = counters.total(kernel, counters.LOCAL_SECTORS)
    stored = kernel.resources.get("spill_store_bytes")
    spills = int(stored) if isinstance(stored, int | float) else None
    return CounterRow(
        name=kernel.name,
        own=kernel.own,
        share=kernel.share,
        bound=word,
        means=_MEANS.get(word, ""),
        dram=_share(kernel, DRAM),
        compute=_share(kernel, counters.SM_SHARE),
        occupancy=kernel.occupancy,
        possible=kernel.occupancy_possible,
        limit=kernel.occupancy_limit,
        registers=kernel.registers,
        spills=spills,
        spilled=bool(spills) or bool(sectors),
        stall=_STALLS.get(stall[0], stall[0].replace("_", " ")) if stall else "",
        stall_share=stall[1] if stall else None,
    )


def _share(kernel: KernelProfile, name: str) -> float | None:
    value = counters.read(kernel, name)
    return None if value is None else value / 100
