"""Diagnoses what limits a program, using fixed rules. The result consists of the program's class, and of named faults with their cost in time and the
figures that prove them.

Raw counters make agents perform worse (KernelPro: 1.77x raw, 4.00x digested), so only this digest is shown. There are three grades of diagnosis, and
each diagnosis states its grade: with hardware counters (`counters`), with a timeline alone (`timeline`), or from compiled code and the roofline
(`static`).

The thresholds for the class follow a roofline: a resource that reaches half its ceiling or more is the bottleneck; if no resource does, the
bottleneck is latency, launches or a lack of parallel work. The thresholds for faults are defined next to their rules (`host_faults.py`,
`kernel_faults.py`).
"""

from __future__ import annotations

import math
from typing import Any, Literal

from pydantic import BaseModel

from verifier.jobs import KernelProfile, Profile
from verifier.profiling.diagnosing.bound import MEMORY_SHARE
from verifier.profiling.diagnosing.call_time import call_time
from verifier.profiling.diagnosing.cause import Cause, Ceilings, Evidence
from verifier.profiling.diagnosing.defects import wrong_result_text
from verifier.profiling.diagnosing.host_faults import host_faults
from verifier.profiling.diagnosing.kernel_faults import RECURRENT_STEPS, kernel_faults
from verifier.profiling.diagnosing.residency import most_threads, residency
from verifier.profiling.diagnosing.task_facts import TaskFacts
from verifier.profiling.nsight import counters
from verifier.profiling.own_kernels import base_name
from verifier.report import Report

Bottleneck = Literal["memory", "compute", "latency", "launch", "occupancy", "defect", "none"]
Grade = Literal["counters", "timeline", "static"]

FLOOR_REACHED = 0.95  # ratio of floor to time; above it, the excess is within the noise of the ceilings
SETS_THE_PACE = 0.5  # share of a ceiling
BOUND = 0.8  # share of a ceiling; below it, the rest of the time is spent on something else, so the resource is only the nearest to its ceiling
NEAR = 0.3  # share of a ceiling below which no resource is called near it
ALL = 0.95  # share of the device's time; kernels that cover it represent the whole program
LAUNCH_SHARE = 0.3  # share of the program's time
BUSY_ENOUGH = 0.8
WAITING = 0.5  # busy share of the wall time below which a GPU is limited by the host's launches
FLOOR_BEATEN = 0.9  # a program faster than this share of the floor had its data in a cache, so the floor does not apply
FILLED = 0.5  # ratio of the longest kernel's blocks to those that could be resident, below which the device is not filled
TOLD = 0.1  # minimum share of the call at which the arithmetic of a memory-bound program, or an idle device, is worth mentioning
TENSORS_USED = 5.0  # per cent of their peak; kernels that do not use tensor cores stay below this
WORTH = 0.1  # share of the program's time below which a fault does not determine the class
SHOWN_FAULTS = 4
MOST_EVIDENCE = 5


class Diagnosis(BaseModel):
    bottleneck: Bottleneck
    headroom: float | None = None  # time over floor; null if there is no floor
    host_share: float | None = None  # share of a call that a GPU spends waiting for the host; null if unknown
    evidence: list[Evidence] = []
    text: str = ""
    spent: str = ""  # where the time of a call goes (`CallTime.says`); not repeated in `text`
    grade: Grade = "static"
    faults: list[Cause] = []  # the most costly first
    methods: list[str] = []  # catalogue methods in order; filled in by a caller that knows the catalogue

    def says(self) -> str:
        return f"{self.text} {self.spent}".strip()

    def payload(self) -> dict[str, Any]:
        """Returns the fields of the event. Its text contains the whole diagnosis."""
        return {**self.model_dump(exclude={"spent"}), "text": self.says()}


# Maps a program's most costly fault to the program's class.
FAULT_CLASS: dict[str, Bottleneck] = {
    **dict.fromkeys(("uncoalesced-access", "bank-conflicts", "register-spills", "no-data-reuse"), "memory"),
    **dict.fromkeys(("split-fusion", "cache-thrashing", "needless-fill", "needless-copy"), "memory"),
    **dict.fromkeys(("redundant-arithmetic", "slow-functions", "integer-overhead", "fp64-arithmetic"), "compute"),
    **dict.fromkeys(("no-tensor-cores", "warp-divergence"), "compute"),
    **dict.fromkeys(("scalar-access", "barrier-stalls", "atomic-contention", "serial-section", "host-copies", "cold-allocation"), "latency"),
    **dict.fromkeys(("low-occupancy", "few-blocks", "load-imbalance", "serialised-streams"), "occupancy"),
    **dict.fromkeys(("tiny-launches", "needless-sync"), "launch"),
}


def diagnose(
    report: Report,
    profile: Profile | None,
    ceilings: Ceilings,
    *,
    bytes_min: int | None,
    flops: int | None,
    floor_ms: float | None,
    facts: TaskFacts | None = None,
) -> Diagnosis:
    """Diagnoses one verified program. `bytes_min` and `flops` are the task's figures for one call."""
    if report.status != "passed" or report.timing is None:
        return defect(report)
    time_us = report.timing.program_ms * 1e3
    floor_ms = floor_ms or report.floor_ms
    headroom = report.timing.program_ms / floor_ms if floor_ms else None
    beaten = headroom is not None and headroom < FLOOR_BEATEN
    memory = bytes_min / (ceilings.bandwidth_gbs * 1e3 * time_us) if bytes_min else 0.0
    rate, units_of = arithmetic_of(profile, ceilings, flops / (1e3 * time_us) if flops else 0.0)
    compute = flops / (rate * 1e3 * time_us) if flops else 0.0
    top = max(profile.kernels, key=lambda k: k.share, default=None) if profile else None
    launches = profile.launches_per_iteration if profile else None
    facts = (facts or TaskFacts()).model_copy(update={"bytes_min": bytes_min, "flops": flops})
    faults = find_faults(report, profile, ceilings, facts, time_us) if ceilings.kind == "cuda" and profile is not None else []
    spent = call_time(report, profile) if ceilings.kind == "cuda" else None
    waiting = spent.host_share if spent is not None else None
    units = units_busy(profile)
    bottleneck = _classify(time_us, memory, compute, launches, profile, top, ceilings, None if beaten else headroom, waiting)
    if facts.dependent_steps >= RECURRENT_STEPS and max(memory, compute) < SETS_THE_PACE and bottleneck in ("memory", "compute", "occupancy"):
        bottleneck = "latency"  # each step waits for the previous one
    unfilled = _unfilled(top, ceilings) if bottleneck == "occupancy" else ""
    if top is not None and unfilled:
        unfilled = f"{base_name(top.name)[:80]} ({100 * top.share:.0f} % of the device's time): {unfilled}"
    worst = faults[0] if faults and faults[0].lost_us >= WORTH * time_us and bottleneck != "none" else None
    if worst is not None:
        bottleneck = FAULT_CLASS[worst.name]
    evidence = [_time(report, time_us)]
    if floor_ms and headroom is not None:
        evidence.append(_floor(floor_ms, headroom))
    if worst is not None:
        evidence += worst.evidence[:3]
    evidence += _uses(bottleneck, time_us, memory, compute, ceilings, facts, profile, waiting is not None)[: max(MOST_EVIDENCE - len(evidence), 0)]
    idle = waiting if waiting is not None and waiting >= TOLD and bottleneck not in ("launch", "none") else 0.0
    text = _sentence(bottleneck, headroom, memory, compute, units, profile, units_of, unfilled, facts.dependent_steps, idle)
    if worst is not None:
        where = f" (in {base_name(worst.kernel)})" if worst.kernel else ""
        text = f"{worst.says} By estimate it costs about {100 * worst.lost_us / time_us:.0f} % of the call{where}. {text}".strip()
    host_share = round(spent.host_share, 4) if spent is not None else None
    return Diagnosis(
        bottleneck=bottleneck,
        headroom=headroom,
        host_share=host_share,
        evidence=evidence,
        text=text,
        spent=spent.says() if spent is not None else "",
        grade=_grade(profile),
        faults=faults[:SHOWN_FAULTS],
    )


def _uses(
    bottleneck: Bottleneck, time_us: float, memory: float, compute: float, ceilings: Ceilings, facts: TaskFacts, profile: Profile | None, told: bool
) -> list[Evidence]:
    """Returns evidence of how heavily a call uses bandwidth, arithmetic and launches, as far as its class depends on them, and of its longest kernel.
    `told` means that the device's busy time in a timed call is known; the busy share under the profiler is then left out, because the profiler slows
    the host and the share would contradict that time."""
    found = []
    if bottleneck in ("memory", "none", "latency", "occupancy") and facts.bytes_min:
        means = f"{_bytes(facts.bytes_min)} must move in a call at the least; the device sustains {ceilings.bandwidth_gbs:.0f} GB/s"
        found.append(Evidence(figure="minimum traffic, of what the bandwidth carries in a call", value=round(100 * memory, 1), unit="%", means=means))
    if bottleneck in ("compute", "latency") and facts.flops:
        rate, units_of = arithmetic_of(profile, ceilings, facts.flops / (1e3 * time_us))
        means = f"{facts.flops / 1e9:.3g} GFLOP a call; {rate:.0f} GFLOP/s on {units_of}"
        found.append(Evidence(figure="the task's arithmetic, of this rate in a call", value=round(100 * compute, 1), unit="%", means=means))
    launches = profile.launches_per_iteration if profile else None
    if bottleneck == "launch" and launches is not None and launches >= 2:
        means = f"about {ceilings.launch_us:g} us each: {100 * launches * ceilings.launch_us / time_us:.0f} % of the time"
        found.append(Evidence(figure="launches a call", value=round(launches, 1), means=means))
    if profile is not None and profile.device_busy is not None and not told and bottleneck in ("launch", "latency"):
        means = "share of the wall time in which the device worked, under the profiler"
        found.append(Evidence(figure="device busy", value=round(100 * profile.device_busy, 1), unit="%", means=means))
    top = max(profile.kernels, key=lambda k: k.share, default=None) if profile else None
    if top is not None:
        means = "the longest of the program's own kernels" if top.own else "the longest, from the library"
        figure = f"share of {base_name(top.name)[:80]}"
        found.append(Evidence(figure=figure, value=round(100 * top.share, 1), unit="%", means=f"of the device's time: {means}"))
    return found


def find_faults(report: Report, profile: Profile, ceilings: Ceilings, facts: TaskFacts, time_us: float) -> list[Cause]:
    """Finds named faults of a program on a GPU, in descending order of cost."""
    found = [*host_faults(report, profile, ceilings, facts, time_us), *kernel_faults(report, profile, ceilings, facts)]
    return sorted(found, key=lambda cause: -cause.lost_us)


def _grade(profile: Profile | None) -> Grade:
    if profile is None:
        return "static"
    return "counters" if any(kernel.metrics for kernel in profile.kernels) else "timeline"


def defect(report: Report) -> Diagnosis:
    """Diagnoses a program that did not pass."""
    evidence = [Evidence(figure="status", value=report.status, means=report.message[:1000])]
    for stage in report.stages:
        if stage.status == "failed":
            evidence.append(Evidence(figure=f"stage {stage.name}", value="failed", means=stage.detail[:500]))
    trial = next((t for t in report.trials if not t.ok), None)
    if trial is not None:
        if trial.error is not None and trial.bound is not None:
            means = f"bound {trial.bound:.3g}, {trial.norm}; {trial.output}"
            evidence.append(Evidence(figure=f"error in {trial.name}", value=trial.error, means=means))
        else:
            evidence.append(Evidence(figure=f"trial {trial.name}", value="failed", means=trial.detail[:500]))
    for problem in report.problems[:2]:
        evidence.append(Evidence(figure="problem", value=f"line {problem.line}" if problem.line else "program", means=problem.message[:500]))
    text = {
        "build_failed": "The program does not compile",
        "wrong_result": wrong_result_text(report),
        "crashed": "The program crashed",
        "timed_out": "The program did not end in time",
        "rejected": "The program was refused",
        "inconclusive": "The measurement says nothing: its interval is too wide, or its clocks disagree",
    }.get(report.status, "The program could not be measured")
    if report.host_busy:
        text = "Nothing is known to be wrong with the program: it could not be measured"
    return Diagnosis(bottleneck="defect", evidence=evidence[:4], text=f"{text}. {report.message[:1000]}".strip())


def _classify(
    time_us: float,
    memory: float,
    compute: float,
    launches: float | None,
    profile: Profile | None,
    top: KernelProfile | None,
    ceilings: Ceilings,
    headroom: float | None,
    waiting: float | None = None,
) -> Bottleneck:
    """Classifies a program. `waiting` is the share of a timed call during which the device is idle; null if unknown, in which case the profiled calls
    count."""
    if headroom is not None and headroom <= 1 / FLOOR_REACHED:
        return "none"
    busy = 1 - waiting if waiting is not None else profile.device_busy if profile else None
    idle = busy is None or busy < BUSY_ENOUGH
    if launches is not None and launches >= 4 and idle and launches * ceilings.launch_us / time_us >= LAUNCH_SHARE:
        return "launch"
    if ceilings.kind == "cuda" and launches is not None and launches >= 2 and busy is not None and busy < WAITING:
        return "launch"  # the device waits for the host between launches
    if max(memory, compute) >= SETS_THE_PACE:
        return "memory" if memory >= compute else "compute"
    if waiting is not None and waiting >= LAUNCH_SHARE:
        return "launch"  # regardless of the number of launches, because no kernel fault costs as much
    if ceilings.kind == "cuda":
        if top is not None and top.share >= SETS_THE_PACE and _unfilled(top, ceilings):
            return "occupancy"
        if busy is not None and busy < 0.6:
            return "latency"
    units = units_busy(profile)
    if units is not None:  # if there are counters, the actual load of the units decides, not the load that the task requires
        if max(units[:2]) < SETS_THE_PACE:
            return "latency"
        return "compute" if units[0] >= units[1] else "memory"
    if max(memory, compute) >= SETS_THE_PACE / 2:
        return "memory" if memory >= compute else "compute"
    return "latency"


def units_busy(profile: Profile | None) -> tuple[float, float, float] | None:
    """Returns how busy the multiprocessors and the memory behind them (L2 and DRAM) are while the kernels with counters run, according to Nsight
    Compute: the time-weighted mean of these kernels' shares of the peak. The third figure is their share of the device's time. Returns null without
    counters, or if they cover less than half of the time."""
    if profile is None:
        return None
    found = [(kernel.share, counters.read(kernel, counters.SM_SHARE), _memory_share(kernel)) for kernel in profile.kernels]
    known = [(share, sm / 100, memory / 100) for share, sm, memory in found if sm is not None and memory is not None]
    counted = sum(share for share, _, _ in known)
    if counted < 0.5:
        return None
    return sum(share * sm for share, sm, _ in known) / counted, sum(share * memory for share, _, memory in known) / counted, counted


def _memory_share(kernel: KernelProfile) -> float | None:
    """Returns the higher utilisation of L2 and DRAM. The L1 cache counts only if neither was recorded, because it also provides shared memory, which
    matrix-product tiles keep busy without any memory traffic."""
    behind = [share for name in (counters.DRAM_SHARE, counters.L2_SHARE) if (share := counters.read(kernel, name)) is not None]
    return max(behind) if behind else counters.read(kernel, MEMORY_SHARE)


def _unfilled(top: KernelProfile | None, ceilings: Ceilings) -> str:
    """Describes a kernel's grid if it fills less than half of the device, relative to the blocks that its registers, shared memory and block size
    allow to be resident; "" if it fills more, or if its grid or limits are unknown."""
    threads = _threads(top) if top is not None else 0
    if top is None or not threads:
        return ""
    held = residency(top, ceilings.workers, ceilings.capability)
    filled = held.filled if held is not None else threads / (ceilings.workers * most_threads(ceilings.capability))
    if filled >= FILLED:
        return ""
    return held.short_grid() if held is not None else f"its grid has {threads:,} threads for {ceilings.workers} multiprocessors"


def arithmetic_of(profile: Profile | None, ceilings: Ceilings, rate: float = 0.0) -> tuple[float, str]:
    """Returns the rate (GFLOP/s) against which a program's products are judged, and the units in words: the tensor cores if its kernels use them,
    otherwise the fp32 units. Without counters, a `rate` in a call beyond the capability of the fp32 units shows that the kernels use tensor cores."""
    beyond = _grade(profile) != "counters" and rate > ceilings.gflops
    if ceilings.on_tensor_cores and (_on_tensor_cores(profile) or beyond):
        return ceilings.product_gflops, ceilings.product_units or "tensor cores"
    return ceilings.gflops, "the fp32 units"


def _threads(kernel: KernelProfile) -> int:
    if kernel.grid is None or kernel.block is None:
        return 0
    return math.prod(kernel.grid) * math.prod(kernel.block)


def _time(report: Report, time_us: float) -> Evidence:
    eager = report.against("eager")
    means = f"eager took {eager.baseline_ms * 1e3:.1f} us in the same measurement" if eager else ""
    return Evidence(figure="time a call", value=round(time_us, 2), unit="us", means=means)


def _floor(floor_ms: float, headroom: float) -> Evidence:
    if headroom < FLOOR_BEATEN:
        means = f"the floor by memory bandwidth is {floor_ms * 1e3:.1f} us: the data must stay in a cache, so the floor does not apply"
        return Evidence(figure="time over floor", value=round(headroom, 3), unit="x", means=means)
    means = f"the floor is {floor_ms * 1e3:.1f} us: {100 / headroom:.0f} % of it is reached"
    return Evidence(figure="time over floor", value=round(headroom, 3), unit="x", means=means)


def _on_tensor_cores(profile: Profile | None) -> bool:
    return any(uses_tensor_cores(kernel) for kernel in (profile.kernels if profile else []))


def uses_tensor_cores(kernel: KernelProfile) -> bool | None:
    """Returns whether a kernel uses tensor cores, judging by its counters or else by its machine code; null if neither is known."""
    share = counters.read(kernel, counters.TENSOR_SHARE)
    if share is not None:
        return share >= TENSORS_USED
    instructions = kernel.resources.get("tensor_instructions")
    return float(instructions) > 0 if isinstance(instructions, (int, float)) else None


def _sentence(
    bottleneck: str, headroom: float | None, memory: float, compute: float, units: tuple[float, float, float] | None,
    profile: Profile | None, units_of: str, unfilled: str, dependent_steps: int, idle: float = 0.0,
) -> str:  # fmt: skip
    left = f"; it takes {headroom:.1f} times the floor" if headroom is not None and headroom >= FLOOR_BEATEN else ""
    if left and dependent_steps:
        left += f", which does not count that {dependent_steps:,} steps wait for each other"
    if idle:
        left = f"; the device is idle for {100 * idle:.0f} % of the call{left}"
    arithmetic, own = f"{100 * compute:.0f} % of {units_of}", f"the task's own operations would take {100 * compute:.0f} % of the call on {units_of}"
    if compute > 1:
        where = "on tensor cores" if _on_tensor_cores(profile) else "less of it than the task's operators count"
        arithmetic, own = where, f"{where}, {compute:.2f} times what {units_of} can do"
    least = f"the least traffic possible would take {100 * memory:.0f} % of the call"
    units_share, memory_share, counted = units or (0.0, 0.0, 0.0)
    when = "while the device works" if counted >= ALL else f"in the kernels with counters, {100 * counted:.0f} % of the time in kernels"
    if units is not None and max(memory, compute) < SETS_THE_PACE:
        least = f"L2 or DRAM is {100 * memory_share:.0f} % busy {when}; {least}" + (f", {own}" if compute >= TOLD else "")
        own = f"the multiprocessors' busiest unit is {100 * units_share:.0f} % busy {when}; {own}"
    elif units is None and max(memory, compute) < BOUND:
        own, least = (f"{said}; {_unknown(profile)}" for said in (own, least))
    else:
        least += "; what the program moves beyond it is not counted here"
    seen = ""
    if units is not None:
        seen = f" ({when}, the multiprocessors' busiest unit is {100 * units_share:.0f} % and L2 or DRAM {100 * memory_share:.0f} % busy)"
    used = max(memory, memory_share) if bottleneck == "memory" else max(compute, units_share)
    bound = "Bound by {}" if used >= BOUND else "Nearest to its ceiling is {}" if used >= NEAR else "Nothing is known to be near its ceiling"
    return {
        "none": f"At the floor{left}: nothing worth having is left.",
        "memory": f"{bound.format('memory')}: {least}{left}.",
        "compute": f"{bound.format('arithmetic')}: {own}{left}.",
        "launch": f"Launch bound: the device waits for the host{left}.",
        "occupancy": f"Too little work in flight in the longest kernel, {unfilled}{left}." if unfilled else "",
        "latency": f"Latency bound: neither memory ({100 * memory:.0f} % of its bandwidth, by the least traffic) nor arithmetic ({arithmetic}, by "
        f"the task's operators) is at its ceiling{seen}{left}.",
    }[bottleneck]


def _unknown(profile: Profile | None) -> str:
    """Says why it is unknown how busy the units of the device are: no kernel has counters, or those that have them run for too short a time."""
    counted = sum(kernel.share for kernel in profile.kernels if counters.read(kernel, counters.SM_SHARE) is not None) if profile else 0.0
    if not counted:
        return "without counters it is not known what else is busy"
    return f"the kernels with counters take {100 * counted:.0f} % of the time in kernels, too little to say what else is busy"


def _bytes(count: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} bytes"
