"""Faults within kernels: from Nsight Compute's counters where available, otherwise from launch shapes, compiled code and the roofline.

Sources of the thresholds:
- A coalesced load by a warp touches four 32-byte sectors if each lane loads 4 bytes, and 16 sectors if each lane loads 16 bytes; in both cases,
  every byte is used (CUDA C++ Best Practices Guide, 10.2.1). More than 8 sectors per request with half of their bytes unused means strided access at
  any width.
- Nsight Compute considers a resource well used at 60 % of its peak or more (its speed-of-light rule); below that, it suspects latency.
- An occupancy of a quarter to a half hides memory latency in streaming kernels (Little's law: 4 TB/s times 0.7 us is 2.8 MB in flight, or 10 bytes
  for each of an H200's 270,000 threads). Below that, the kernel waits.
- The most heavily used unit is the bottleneck. A kernel whose issue slots are busier than its memory path gains nothing from fewer sectors. A kernel
  that is launched repeatedly and runs for only a few microseconds spends that time on starting and draining, whatever its shape.
"""

from __future__ import annotations

from dataclasses import dataclass

from verifier.jobs import KernelProfile, Profile
from verifier.profiling.diagnosing.arithmetic_faults import MATMUL_FLOPS, arithmetic_fault, double_precision
from verifier.profiling.diagnosing.cause import Cause, Ceilings, Evidence
from verifier.profiling.diagnosing.residency import Residency, most_threads, residency
from verifier.profiling.diagnosing.task_facts import TaskFacts
from verifier.profiling.nsight import counters
from verifier.profiling.nsight.counters import read, total
from verifier.report import Report

LOOKED_AT = 0.1  # share of the device's time below which kernels are ignored
WELL_USED = 0.6
STREAMING = 0.75  # share of the bandwidth at which a kernel streams well
STRIDED_SECTORS, STRIDED_BYTES = 8.0, 16.0  # sectors per request, used bytes per sector
MEMORY_WAITS = 0.4  # share of a warp's time spent waiting for memory
CONFLICTS, CONFLICT_TIME = 0.3, 0.15  # share of wavefronts, share of the kernel's cycles
LOCAL_SHARE = 0.2  # share of a kernel's sectors in the L1 cache
LOAD_SHARE, REUSE = 0.12, 8.0  # share of loads among instructions; ratio of requested to distinct bytes
NARROW = 2.0  # bytes per thread and load
DENSE = 24.0  # used bytes per sector if lanes read neighbouring elements; a broadcast uses 4
ISSUING = 0.5  # share of issue slots above which instructions, not loads, are the bottleneck
LOW_OCCUPANCY, VERY_LOW_OCCUPANCY = 0.5, 0.3
TENSOR_TILES = 0.05  # share of the tensor pipe's peak above which a kernel computes products, which take few warps with many registers by design
IMBALANCE = 0.7  # ratio of mean to maximum active cycles per multiprocessor
BARRIER = 0.25  # share of a warp's time; block-wide sums in streaming kernels stay below 0.2
ATOMICS = 0.2  # ratio of atomic requests to load requests
DIVERGENT, SERIAL = 22.0, 18.0  # active threads of 32
FINISHED_EARLY = 0.6  # ratio of achieved to theoretical occupancy at which most warps of a block have finished
EXCESS_TRAFFIC = 1.4  # multiple of the bytes that must be moved
BUSY_MEMORY = 0.35
RECURRENT_STEPS = 16  # minimum number of dependent steps that indicates a recurrence rather than a deep model
REPEATED, BRIEF_US = 4, 10.0  # launches per call and their mean duration, at which the kernel's shape does not matter


@dataclass(frozen=True)
class View:
    """One kernel in one call."""

    kernel: KernelProfile
    us: float
    launches: float
    ceilings: Ceilings
    facts: TaskFacts

    def get(self, name: str, default: float = 0.0) -> float:
        value = read(self.kernel, name)
        return default if value is None else value

    def sum(self, names: dict[str, str], *which: str) -> float:
        return total(self.kernel, names, *which) or 0.0

    @property
    def counted(self) -> bool:
        return bool(self.kernel.metrics)

    @property
    def blocks(self) -> int:
        grid = self.kernel.grid
        return grid[0] * grid[1] * grid[2] if grid else int(self.get(counters.GRID))

    @property
    def threads(self) -> int:
        block = self.kernel.block
        return block[0] * block[1] * block[2] if block else int(self.get(counters.BLOCK))

    @property
    def dram_bytes(self) -> float:
        """DRAM bytes of all launches of the kernel in a call."""
        return (self.get(counters.DRAM_READ) + self.get(counters.DRAM_WRITE)) * self.launches

    @property
    def dram_share(self) -> float:
        """Share of the bandwidth ceiling reached while the kernel ran under the profiler."""
        ns = self.get(counters.TIME)
        return (self.get(counters.DRAM_READ) + self.get(counters.DRAM_WRITE)) / ns / self.ceilings.bandwidth_gbs if ns else 0.0

    @property
    def of_dram(self) -> str:
        """Describes what `dram_share` is a share of. Counters of DRAM are shares of its peak, which no program sustains."""
        return f"DRAM: of the {self.ceilings.bandwidth_gbs:.0f} GB/s that it sustains"

    @property
    def issue_share(self) -> float:
        return self.get(counters.ISSUE_SHARE) / 100

    @property
    def memory_share(self) -> float:
        """Utilisation of the most heavily used part of the memory path, starting at the L1 cache."""
        return max(self.get(name) for name in (counters.L1_SHARE, counters.L2_SHARE, counters.LSU_WAVEFRONTS)) / 100

    @property
    def best_used(self) -> tuple[str, float]:
        """Returns the resource with the highest share of its peak (DRAM: of what it sustains), and that share."""
        shares = {"DRAM": self.dram_share, "issue slots": self.issue_share, "tensor cores": self.tensor_share}
        if self.issue_share > 0.3:
            shares["L1 cache and shared memory"] = self.get(counters.L1_SHARE) / 100
        name = max(shares, key=lambda key: shares[key])
        return name, shares[name]

    @property
    def memory_waits(self) -> float:
        """Share of a warp's time spent waiting for loaded data, or for its turn to load and store."""
        stalls = counters.stall_shares(self.kernel)
        return sum(stalls.get(name, 0.0) for name in ("long_scoreboard", "lg_throttle", "drain"))

    @property
    def tensor_share(self) -> float:
        return self.get(counters.TENSOR_SHARE) / 100

    @property
    def residency(self) -> Residency | None:
        return residency(self.kernel, self.ceilings.workers, self.ceilings.capability)

    @property
    def balance(self) -> float:
        """Ratio of mean to maximum active cycles per multiprocessor."""
        longest = self.get(counters.SM_CYCLES["max"])
        return self.get(counters.SM_CYCLES["avg"]) / longest if longest else 1.0

    @property
    def brief(self) -> bool:
        return self.launches > REPEATED and self.kernel.mean_us < BRIEF_US

    @property
    def cycles(self) -> float:
        return self.get(counters.SM_CYCLES_ELAPSED) or self.get(counters.SM_CYCLES["max"])

    @property
    def requested_bytes(self) -> float:
        """Bytes that the kernel's loads request in a call: at least 4 bytes per lane, or the amount implied by the sectors."""
        requests, sectors = self.get(counters.GLOBAL_REQUESTS["ld"]), self.get(counters.GLOBAL_SECTORS["ld"])
        return max(requests * 128, sectors * self.get(counters.BYTES_PER_SECTOR["ld"])) * self.launches

    def cause(self, name: str, share: float, says: str, *figures: tuple[str, float | str, str, str]) -> Cause:
        evidence = [
            Evidence(figure=figure, value=value if isinstance(value, str) else round(value, 3), unit=unit, means=means)
            for figure, value, unit, means in figures
        ]
        return Cause(name=name, lost_us=self.us * max(min(share, 1.0), 0.0), kernel=self.kernel.name[:200], evidence=evidence, says=says)


def kernel_faults(report: Report, profile: Profile, ceilings: Ceilings, facts: TaskFacts) -> list[Cause]:
    whole = sum(kernel.total_us for kernel in profile.kernels) or 1.0
    views = [
        View(kernel, kernel.total_us / profile.iterations, kernel.calls / profile.iterations, ceilings, facts)
        for kernel in profile.kernels
        if kernel.total_us >= LOOKED_AT * whole
    ]
    found: list[Cause] = []
    for view in views:
        if not view.kernel.own:
            continue
        shape = [fault for fault in (_serial(view), _few_blocks(view), _imbalance(view), _occupancy(view)) if fault is not None and not view.brief]
        if not view.counted:
            found += shape + [fault for fault in (_static_spills(view), _static_narrow(view)) if fault is not None]
            continue
        access = (
            _uncoalesced(view),
            _conflicts(view),
            _spills(view),
            _no_reuse(view),
            _narrow(view),
            _atomics(view),
            _barriers(view),
            _divergence(view),
        )
        mine = shape + [fault for fault in access if fault is not None]
        # Expensive functions branch on the range of their argument. Without these functions, the inactive lanes would disappear too, so divergence
        # does not rule them out as a cause.
        held = max((fault.lost_us for fault in mine if fault.name != "warp-divergence"), default=0.0)
        excess = double_precision(view) or (arithmetic_fault(view, report.precision) if held < 0.3 * view.us else None)
        found += [*mine, excess] if excess is not None else mine
    traffic = _traffic(views, profile, facts)
    return found + ([traffic] if traffic is not None else [])


# Distribution of work


def _serial(view: View) -> Cause | None:
    """Detects single threads that do work that a whole warp or block could share. A report without a profile has no grid (0)."""
    if 0 < view.blocks * view.threads <= 32:
        figures = ("threads in the grid", float(view.blocks * view.threads), "", "of one warp at most")
        return view.cause("serial-section", 1 - 1 / view.ceilings.workers, "A kernel runs in a single thread or warp.", figures)
    active = view.get(counters.ACTIVE_THREADS, 32.0)
    measured, possible = view.kernel.occupancy, view.kernel.occupancy_possible
    filled = view.blocks * view.threads >= view.ceilings.workers * 2048 * possible if possible else False  # otherwise, few warps from the start
    if active > SERIAL or measured is None or not possible or not filled or measured / possible > FINISHED_EARLY:
        return None
    return view.cause(
        "serial-section",
        (1 - active / 32) * (1 - measured / possible) ** 0.5,
        "Most of the time, single threads work while the rest of their block has finished.",
        ("active threads a warp", active, "", "of 32"),
        ("occupancy", 100 * measured, "%", f"of {100 * possible:.0f} % that could be resident"),
    )


def _few_blocks(view: View) -> Cause | None:
    sms = view.ceilings.workers
    if view.blocks * view.threads <= 32 or view.blocks >= 0.75 * sms or view.launches > 4:
        return None
    says = "The grid has fewer blocks than the device has multiprocessors."
    return view.cause("few-blocks", 1 - view.blocks / sms, says, ("blocks", float(view.blocks), "", f"for {sms} multiprocessors"))


def _imbalance(view: View) -> Cause | None:
    if view.blocks < 0.75 * view.ceilings.workers or view.balance > IMBALANCE:
        return None
    says = "Some multiprocessors work long after the others have finished."
    return view.cause("load-imbalance", 1 - view.balance, says, ("active cycles, mean over longest", 100 * view.balance, "%", "multiprocessors"))


def _occupancy(view: View) -> Cause | None:
    possible, measured = view.kernel.occupancy_possible, view.kernel.occupancy
    if possible is None or view.blocks < 0.75 * view.ceilings.workers:
        return None
    if view.tensor_share >= TENSOR_TILES and view.memory_waits < MEMORY_WAITS:
        return None  # matrix-product tiles use few warps with many registers, which do not wait for memory
    if not view.counted and (view.facts.flops or 0) >= MATMUL_FLOPS:
        return None  # it may compute such tiles, which only counters can show
    if view.facts.dependent_steps >= RECURRENT_STEPS:
        return None  # persistent blocks exchange a state step by step, and more of them would not shorten a step
    resident = view.blocks * view.threads / (view.ceilings.workers * most_threads(view.ceilings.capability))  # if the device is filled evenly
    low = possible <= LOW_OCCUPANCY if measured is None else (possible <= LOW_OCCUPANCY and measured <= LOW_OCCUPANCY)
    low = low or (resident <= VERY_LOW_OCCUPANCY and (measured is None or measured <= VERY_LOW_OCCUPANCY))
    name, used = view.best_used
    if not low or used >= STREAMING:
        return None
    held = view.residency
    why = held.why() if held is not None else f"they are limited by {view.kernel.occupancy_limit or 'the grid'}"
    return view.cause(
        "low-occupancy",
        (1 - used / STREAMING) * min(view.balance, 1.0) if view.counted else 0.5,  # higher occupancy does not help multiprocessors that have finished
        f"Too few warps are resident to hide latency: {why}.",
        ("occupancy", 100 * (measured if measured is not None else possible), "%", f"{100 * possible:.3g} % are possible as the kernel is built"),
        ("threads a block", float(view.threads), "", f"{view.blocks} blocks"),
        *([(f"best used: {name}", 100 * used, "%", view.of_dram if name == "DRAM" else "of its peak")] if view.counted else []),
    )


# Memory access


def _uncoalesced(view: View) -> Cause | None:
    wasted = whole = 0.0
    worst = ("", 0.0, 0.0)
    for op in ("ld", "st"):
        sectors, requests = view.get(counters.GLOBAL_SECTORS[op]), view.get(counters.GLOBAL_REQUESTS[op])
        used = view.get(counters.BYTES_PER_SECTOR[op], 32.0)
        whole += sectors
        # 0 means that all loads are copies to shared memory (cp.async), which this figure does not count
        if requests and sectors / requests >= STRIDED_SECTORS and 0 < used <= STRIDED_BYTES:
            wasted += sectors * (1 - used / 32)
            worst = max(worst, (op, sectors / requests, used), key=lambda item: item[1])
    if not whole or wasted / whole < 0.25 or view.issue_share > max(view.memory_share, ISSUING):
        return None
    if max(view.memory_share, view.memory_waits / MEMORY_WAITS * WELL_USED) < WELL_USED:
        return None  # the accesses are scattered, but the memory path sustains them and no warp waits for them
    if view.dram_share >= STREAMING and view.dram_bytes < EXCESS_TRAFFIC * _useful_bytes(view):
        return None  # further accesses use the rest of the sectors while they are in a cache, and DRAM is at its ceiling
    what = "load" if worst[0] == "ld" else "store"
    return view.cause(
        "uncoalesced-access",
        wasted / whole,
        "The lanes of a warp touch memory far apart.",
        (f"sectors a {what}", worst[1], "", "of 32 bytes; 4 are enough for 32 floats"),
        ("bytes used of a sector", worst[2], "bytes", "of 32"),
        ("bandwidth used by this kernel", 100 * view.dram_share, "%", view.of_dram),
    )


def _conflicts(view: View) -> Cause | None:
    conflicts, wavefronts = view.sum(counters.BANK_CONFLICTS, "ld", "st"), view.sum(counters.SHARED_WAVEFRONTS, "ld", "st")
    if not wavefronts or not view.cycles:
        return None
    time = conflicts / view.ceilings.workers / view.cycles
    if conflicts / wavefronts < CONFLICTS or time < CONFLICT_TIME:
        return None
    return view.cause(
        "bank-conflicts",
        time,
        "Lanes of a warp access the same bank of shared memory.",
        ("conflicts among wavefronts", 100 * conflicts / wavefronts, "%", "of shared memory"),
        ("cycles in replays", 100 * min(time, 1.0), "%", "of the kernel's"),
    )


def _spills(view: View) -> Cause | None:
    local = view.sum(counters.LOCAL_SECTORS)
    whole = local + view.sum(counters.GLOBAL_SECTORS) + view.sum(counters.SHARED_WAVEFRONTS, "ld", "st")
    if not local or local / whole < LOCAL_SHARE:
        return None
    stack = view.kernel.resources.get("stack_bytes", 0)
    return view.cause(
        "register-spills",
        local / whole,
        "Values of a thread live in local memory instead of registers.",
        ("local memory", 100 * local / whole, "%", "of the sectors and wavefronts of the L1 cache"),
        ("registers a thread", float(view.kernel.registers or 0), "", f"{stack} bytes of stack"),
    )


def _static_spills(view: View) -> Cause | None:
    spilled = float(view.kernel.resources.get("spill_load_bytes", 0)) + float(view.kernel.resources.get("spill_store_bytes", 0))
    if spilled < 64:
        return None
    says = "Values of a thread live in local memory instead of registers."
    return view.cause("register-spills", 0.5, says, ("local memory in the code", spilled, "bytes", "a thread and pass over the code"))


def _no_reuse(view: View) -> Cause | None:
    there_are = view.facts.bytes_min or view.dram_bytes
    instructions, loads = view.get(counters.INSTRUCTIONS), view.get(counters.GLOBAL_REQUESTS["ld"])
    if not instructions or not there_are or view.dram_share >= WELL_USED:
        return None
    reuse = view.requested_bytes / there_are
    if loads / instructions < LOAD_SHARE or reuse < REUSE:
        return None
    return view.cause(
        "no-data-reuse",
        (1 - 2 / reuse) * (1 - view.dram_share),
        "The same data are read from global memory again and again.",
        ("requested bytes over distinct bytes", reuse, "x", "by loads from global memory"),
        ("loads among instructions", 100 * loads / instructions, "%", ""),
        ("bandwidth used by this kernel", 100 * view.dram_share, "%", view.of_dram),
    )


def _narrow(view: View) -> Cause | None:
    requests, sectors = view.get(counters.GLOBAL_REQUESTS["ld"]), view.get(counters.GLOBAL_SECTORS["ld"])
    if not requests or view.dram_share >= STREAMING or view.requested_bytes > 8 * (view.facts.bytes_min or view.dram_bytes or 1):
        return None
    used = view.get(counters.BYTES_PER_SECTOR["ld"], 32.0)
    lane = sectors / requests * used / 32
    if lane > NARROW or lane <= 0 or sectors / requests > 4 or used < DENSE or view.issue_share >= ISSUING:
        return None
    return view.cause(
        "scalar-access",
        1 - view.dram_share / STREAMING,
        "Each thread loads a byte or two at a time.",
        ("bytes a lane and load", lane, "bytes", "16 are possible"),
        ("bandwidth used by this kernel", 100 * view.dram_share, "%", view.of_dram),
    )


def _static_narrow(view: View) -> Cause | None:
    widest = view.kernel.resources.get("widest_load_bytes")
    if not isinstance(widest, (int, float)) or widest > NARROW:
        return None
    says = "Each thread loads a byte or two at a time."
    return view.cause("scalar-access", 0.5, says, ("widest load", float(widest), "bytes", "16 are possible"))


def _atomics(view: View) -> Cause | None:
    atomics, loads = view.sum(counters.GLOBAL_REQUESTS, "red", "atom"), view.get(counters.GLOBAL_REQUESTS["ld"])
    if not atomics or atomics < ATOMICS * max(loads, 1) or view.dram_share >= WELL_USED:
        return None
    units = read(view.kernel, counters.ATOMIC_UNITS)
    figures: list[tuple[str, float | str, str, str]] = [
        ("atomics over loads", 100 * atomics / max(loads, 1), "%", "requests to global memory, whatever their width")
    ]
    if units is not None:
        figures.append(("atomic units of the L2", units, "%", "of their peak"))
        figures.append(("warps held up by atomics", 100 * _held_by_atomics(view), "%", "of a warp's time at most"))
    else:
        figures.append(("atomic units of the L2", "not measured", "", "so the cost is the kernel's time beyond its memory traffic"))
    above_memory = 1 - view.dram_share / STREAMING
    return view.cause(
        "atomic-contention",
        above_memory if units is None else min(above_memory, max(units / 100, _held_by_atomics(view))),
        "Many of the kernel's requests to global memory are atomics.",
        *figures,
        ("bandwidth used by this kernel", 100 * view.dram_share, "%", view.of_dram),
    )


def _held_by_atomics(view: View) -> float:
    """Returns the share of a warp's time that atomics can explain: full queues, fences, and waits for the data that atomics return. A reduction
    (`red`) returns nothing, so no warp waits for its result."""
    stalls = counters.stall_shares(view.kernel)
    loads, returning = view.get(counters.GLOBAL_REQUESTS["ld"]), view.get(counters.GLOBAL_REQUESTS["atom"])
    waits = stalls.get("long_scoreboard", 0.0) * returning / max(loads + returning, 1)
    return stalls.get("lg_throttle", 0.0) + stalls.get("membar", 0.0) + waits


def _barriers(view: View) -> Cause | None:
    share = counters.stall_shares(view.kernel).get("barrier", 0.0)
    if share < BARRIER or view.dram_share >= WELL_USED:
        return None
    says = "Warps wait at barriers for much of the time: for each other or, in a kernel whose warps copy and multiply by turns, for the slower role."
    lost = share * (1 - view.dram_share / STREAMING)
    return view.cause("barrier-stalls", lost, says, ("time at barriers", 100 * share, "%", "of a warp's"))


def _divergence(view: View) -> Cause | None:
    active = view.get(counters.ACTIVE_THREADS, 32.0)
    measured, possible = view.kernel.occupancy, view.kernel.occupancy_possible
    if active > DIVERGENT or view.dram_share >= WELL_USED:
        return None
    if measured is not None and possible and active <= SERIAL and measured / possible <= FINISHED_EARLY:
        return None  # reported as a serial section
    says = "The lanes of a warp take different branches, one after another."
    return view.cause("warp-divergence", 1 - active / 32, says, ("active threads a warp", active, "", "of 32"))


def _traffic(views: list[View], profile: Profile, facts: TaskFacts) -> Cause | None:
    """Detects memory traffic beyond the task's needs: between kernels that could be fused, or in one that rereads data evicted from the cache."""
    least = facts.bytes_min
    own = [view for view in views if view.kernel.own and (view.blocks >= view.ceilings.workers or view.dram_share >= BUSY_MEMORY)]
    if not least or not own:
        return None
    us = sum(view.us for view in own)
    steps = sum(min(view.launches, 4) for view in own)
    if all(view.counted for view in own):
        moved = sum(max(view.dram_bytes, _useful_bytes(view) if len(own) > 1 else 0.0) for view in own)
        busy = sum(view.dram_share * view.us for view in own) / us
    else:
        moved, busy = us * own[0].ceilings.bandwidth_gbs * 1e3 * 0.8, 0.8  # assumes that all accesses stream
        if len(own) < 2 or facts.flops:
            return None
    excess = moved / least
    if excess < EXCESS_TRAFFIC or busy < BUSY_MEMORY:
        return None
    figures = [
        ("bytes that the kernels request over bytes that the task needs", excess, "x", f"{least / 1e6:.3g} MB are needed; caches serve a part"),
        ("bandwidth used while they run", 100 * busy, "%", own[0].of_dram),
    ]
    if steps >= 2:
        says = "Intermediate results go through memory between kernels that could be one."
        return (
            own[0]
            .cause("split-fusion", us / own[0].us * (1 - 1 / excess), says, *figures)
            .model_copy(update={"lost_us": us * (1 - 1 / excess), "kernel": ""})
        )
    says = "A kernel returns to data that the cache has evicted by then."
    return own[0].cause("cache-thrashing", 1 - 1 / excess, says, *figures)


def _useful_bytes(view: View) -> float:
    """Returns the bytes that a kernel's loads and stores would request in a call if they were coalesced."""
    return sum(view.get(counters.GLOBAL_SECTORS[op]) * view.get(counters.BYTES_PER_SECTOR[op], 32.0) for op in ("ld", "st")) * view.launches
