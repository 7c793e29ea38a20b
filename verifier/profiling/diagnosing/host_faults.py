"""Faults in a program's host code and in its use of the device as a whole, found from a timeline without counters.

During a wait, the device runs out of work, the host wakes up and launches again, and the launch takes time to arrive. On H200 hosts this costs 10 to
20 us (measured with the empty round trip of the timing shim, which takes 29 to 35 us with two processes; `verification.md`).
"""

from __future__ import annotations

from verifier.jobs import HostCalls, KernelProfile, Profile
from verifier.profiling.diagnosing.cause import Cause, Ceilings, Evidence
from verifier.profiling.diagnosing.task_facts import TaskFacts
from verifier.profiling.own_kernels import base_name
from verifier.report import Report

HOST_FLOOR_US = 15.0  # unavoidable cost of a call: Python, one launch and the final wait
HOST_MOST_US = 100.0  # longest time before the device starts that Python alone can explain
RAMP_US = 1.5  # time that a kernel takes to start and drain, about the duration of an empty kernel
WAIT_COSTS_US = 20.0
LEAST = 0.05  # share of the call below which a cost is not reported
MANY_LAUNCHES = 8
SHORT_US = 25.0  # maximum mean duration of a kernel that counts as short
LARGE_COPY = 1 << 16  # bytes; a smaller copy is a value passing through the host
ROOM = 1.2  # kernels run concurrently if together they need at most this multiple of the device's multiprocessors
WAITS = f"besides the one that ends the call; each is taken to cost {WAIT_COSTS_US:.0f} us: the device runs empty until the host launches again"
NAMED = 2  # number of kernels that are named as copying or filling memory
FILLED = "blocks of the grid over multiprocessors"
_COPIES = ("direct_copy_kernel", "CatArrayBatchedCopy", "copy_device_to_device", "copy_kernel", "contiguous_copy", "transpose_readWrite")
_FILLS = ("FillFunctor", "fill_kernel", "zero_kernel")


def host_faults(report: Report, profile: Profile, ceilings: Ceilings, facts: TaskFacts, time_us: float) -> list[Cause]:
    host = profile.host or _from_digest(profile)
    launches = profile.launches_per_iteration or 0.0
    floor_us = max(HOST_FLOOR_US, min(host.begin_us, HOST_MOST_US))
    idle_us = max(time_us - host.device_us - floor_us, 0.0)
    found = [
        _allocation(host),
        _host_copies(host),
        _waits(host, idle_us, launches, floor_us),
        _tiny_launches(profile, host, ceilings, launches, time_us - floor_us),
        _serialised(profile, host, ceilings, facts, launches),
        _moved(profile, host, fills=True),
        _moved(profile, host, fills=False),
    ]
    return [cause for cause in found if cause is not None and cause.lost_us >= LEAST * time_us]


def _from_digest(profile: Profile) -> HostCalls:
    """Derives the host's calls from a digest, for timelines without CUDA API calls."""
    busy = (profile.device_busy or 0.0) * profile.wall_us_per_iteration
    return HostCalls(device_us=busy, kernel_us=sum(kernel.total_us for kernel in profile.kernels) / max(profile.iterations, 1), streams=1)


def _allocation(host: HostCalls) -> Cause | None:
    if host.allocations < 1:
        return None
    evidence = [
        Evidence(figure="driver allocations a call", value=round(host.allocations, 1), means="cudaMalloc, cudaFree and similar calls"),
        Evidence(figure="time in them", value=round(host.allocation_us, 1), unit="us", means="cudaFree waits for the whole device"),
    ]
    says = "Memory is allocated or freed by the driver in every call."
    return Cause(name="cold-allocation", lost_us=host.allocation_us, evidence=evidence, says=says)


def _host_copies(host: HostCalls) -> Cause | None:
    moved = {name: copy for name, copy in host.copies.items() if name in ("HtoD", "DtoH") and copy.bytes >= LARGE_COPY}
    if not moved:
        return None
    evidence = [
        Evidence(figure=f"{name} a call", value=round(copy.bytes / 1e6, 2), unit="MB", means=f"{copy.count:.0f} copies, {copy.us:.0f} us on the bus")
        for name, copy in moved.items()
    ]
    says = "Data travel between host and device in every call."
    return Cause(name="host-copies", lost_us=sum(copy.us for copy in moved.values()) + host.waits * WAIT_COSTS_US, evidence=evidence, says=says)


def _waits(host: HostCalls, idle_us: float, launches: float, floor_us: float) -> Cause | None:
    if host.waits < 1 or launches < 2:
        return None
    evidence = [
        Evidence(figure="waits for the device a call", value=round(host.waits, 1), means=WAITS),
        Evidence(figure="device idle", value=round(idle_us, 1), unit="us", means=f"of a call, beyond {floor_us:.0f} us for its start"),
    ]
    values = host.copies.get("DtoH")
    if values is not None and values.count >= 1:
        size = f"{values.bytes / values.count:.0f} bytes each"
        evidence.append(Evidence(figure="values read back a call", value=round(values.count, 1), means=size))
    says = "The host waits for the device in the middle of a call."
    return Cause(name="needless-sync", lost_us=min(idle_us, host.waits * WAIT_COSTS_US), evidence=evidence, says=says)


def _tiny_launches(profile: Profile, host: HostCalls, ceilings: Ceilings, launches: float, above_us: float) -> Cause | None:
    """Detects many short launches of the same kernel with little work each, unless host waits separate them."""
    if launches < MANY_LAUNCHES or host.waits * 4 >= launches:
        return None
    again = [k for k in profile.kernels if k.calls / profile.iterations >= MANY_LAUNCHES / 2 and k.mean_us <= SHORT_US]
    count = sum(k.calls for k in again) / profile.iterations
    if count < launches / 2:
        return None
    # If they were merged, they would take only the time during which they fill the device, and would start and drain only once.
    merged = sum(k.calls / profile.iterations * max(k.mean_us - RAMP_US, k.mean_us / 4) * min(1.0, _fill(k, ceilings)) for k in again)
    rest = sum(k.total_us for k in profile.kernels if k not in again) / profile.iterations
    evidence = [
        Evidence(figure="launches a call", value=round(launches, 1), means=f"{count:.0f} of kernels that are launched repeatedly"),
        Evidence(figure="mean kernel", value=round(sum(k.total_us for k in again) / max(count * profile.iterations, 1), 2), unit="us"),
        *_filled(again, ceilings),
    ]
    says = "The work is cut into many tiny launches."
    return Cause(name="tiny-launches", lost_us=max(above_us - merged - rest, 0.0), evidence=evidence, says=says)


def _serialised(profile: Profile, host: HostCalls, ceilings: Ceilings, facts: TaskFacts, launches: float) -> Cause | None:
    """Detects kernels that leave most of the device idle and run one after another although the task has independent branches."""
    if facts.branches < 2 or launches < 2 or launches > 4 * facts.branches or host.streams != 1:
        return None
    small = [k for k in profile.kernels if _fill(k, ceilings) < 0.5 and k.total_us / profile.iterations >= LEAST * host.device_us]
    runs = [(k.mean_us, _fill(k, ceilings)) for k in small for _ in range(round(k.calls / profile.iterations))]
    if len(runs) < 2:
        return None
    together = min(len(runs), facts.branches)
    longest, whole = max(us for us, _ in runs), sum(us for us, _ in runs)
    side_by_side = max(longest, whole / together, sum(us * fill for us, fill in runs) / ROOM)
    evidence = [
        Evidence(figure="independent branches", value=facts.branches, means="of the task's graph"),
        Evidence(figure="streams used", value=host.streams, means=f"for {len(runs)} kernels that take {whole:.0f} us one after another"),
        Evidence(figure="device filled by one", value=round(100 * max(fill for _, fill in runs), 1), unit="%", means=FILLED),
    ]
    says = "Independent branches run one after another, and each fills only a part of the device."
    return Cause(name="serialised-streams", lost_us=whole - side_by_side, evidence=evidence, says=says)


def _moved(profile: Profile, host: HostCalls, fills: bool) -> Cause | None:
    """Detects fills and copies of whole tensors in addition to the program's own kernels."""
    marks = _FILLS if fills else _COPIES
    kernels = [k for k in profile.kernels if not k.own and any(mark in k.name for mark in marks)]
    by_driver = host.fills if fills else host.copies.get("DtoD")
    us = sum(k.total_us for k in kernels) / profile.iterations + (by_driver.us if by_driver else 0.0)
    count = sum(k.calls for k in kernels) / profile.iterations + (by_driver.count if by_driver else 0.0)
    if not count:
        return None
    what = "fills" if fills else "copies"
    longest = sorted(kernels, key=lambda kernel: -kernel.total_us)[:NAMED]
    named = ", ".join(f"{kernel.total_us / profile.iterations:.1f} in {base_name(kernel.name).rsplit('::', 1)[-1]}" for kernel in longest)
    where = f"of {host.device_us:.0f} us on the device{f': {named}' if named else ''}"
    evidence = [
        Evidence(figure=f"{what} a call", value=round(count, 1), means="whole tensors, beside the program's own kernels"),
        Evidence(figure=f"time in {what}", value=round(us, 1), unit="us", means=where),
    ]
    says = "The program fills memory that it overwrites anyway." if fills else "Tensors are copied to another location or layout between kernels."
    return Cause(name="needless-fill" if fills else "needless-copy", lost_us=us, evidence=evidence, says=says)


def _filled(kernels: list[KernelProfile], ceilings: Ceilings) -> list[Evidence]:
    """Returns the highest fill of any kernel; empty if no grid is known."""
    known = [_fill(kernel, ceilings) for kernel in kernels if kernel.grid is not None]
    return [Evidence(figure="device filled by one", value=round(100 * max(known), 1), unit="%", means=FILLED)] if known else []


def _fill(kernel: KernelProfile, ceilings: Ceilings) -> float:
    """Returns the ratio of blocks to multiprocessors; below 1, some multiprocessors are idle."""
    if kernel.grid is None:
        return 1.0
    return kernel.grid[0] * kernel.grid[1] * kernel.grid[2] / ceilings.workers
