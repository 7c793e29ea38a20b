"""Describes the profile of the reference: in words for models, and as the facts on which the catalogue's conditions depend."""

from __future__ import annotations

from agents.diagnosis import task_structure
from agents.roles.compiled import Compiled
from agents.roles.host_cost import at_call_time
from agents.roles.names import short_name
from agents.roles.of_kernels import TOP_KERNELS
from agents.roles.situation import Situation
from agents.strategies import Facts
from compiler.planning.cost import duration
from verifier.jobs import Profile
from verifier.profiling.diagnosing.call_time import call_time
from verifier.profiling.diagnosing.task_facts import task_facts

WORTH_MOVING = 0.02  # minimum share of the device's time at which copies and fills are told beside kernels
WAITS_FAULT = "needless-sync"  # the fault of a program, or of the reference, that waits for the device within a call


def profile_text(profile: Profile | None, call_ms: float | None = None) -> str:
    """Returns the profile of the reference: where the time goes, the number of launches, and how busy the device is. `call_ms` is the time of a call
    without the profiler, if it is known."""
    if profile is None:
        return "The reference could not be profiled, so the gain of a step can only be estimated from its floor."
    tool = {"nsys": "Nsight Systems", "cupti": "CUPTI", "torch-profiler": "torch.profiler"}[profile.tool]
    spent = call_time(None, profile)
    if spent is not None and call_ms is not None and spent.device_us < 1e3 * call_ms < spent.call_us:
        slowed = duration(spent.call_us / 1e3)
        spent = at_call_time(spent, 1e3 * call_ms)
        lines = [f"By {tool}, under which a call takes {slowed}. It slows the host, so idle times are scaled down to the call's time under Task."]
    else:
        lines = [f"By {tool}, which slows the host: the share of idle time is an upper limit, and the time of a call is the one under Task."]
    if spent is not None:
        lines.append(spent.says())
    elif profile.launches_per_iteration is not None:
        lines.append(f"{profile.launches_per_iteration:.0f} {'operators' if profile.tool == 'torch-profiler' else 'launches'} a call.")
        lines[-1] += f" The device works {100 * profile.device_busy:.0f} % of the time." if profile.device_busy is not None else ""
    if profile.gap_us_p50 is not None:
        lines[-1] += f" Median gap between kernels under the profiler: {profile.gap_us_p50:.1f} us."
    top = sorted(profile.kernels, key=lambda k: -k.share)
    lines += [f"Shares are of the time in kernels{_moving(profile)}:"] if top else []
    for kernel in top[:TOP_KERNELS]:
        calls = kernel.calls / max(profile.iterations, 1)
        lines.append(f"- {100 * kernel.share:.0f} %: {short_name(kernel.name)}, {calls:.0f} a call, {kernel.mean_us:.1f} us each")
    if len(top) > TOP_KERNELS:
        lines.append(f"- {100 * sum(k.share for k in top[TOP_KERNELS:]):.0f} % in {len(top) - TOP_KERNELS} more")
    return "\n".join(lines)


def _moving(profile: Profile) -> str:
    """Says how long copies and fills take in addition to kernels, if that is a noticeable part of the device's time."""
    host = profile.host
    us = sum(moved.us for moved in (*host.copies.values(), host.fills)) if host is not None else 0.0
    return f" (copies and fills take {us:.0f} us a call beside it)" if host is not None and us >= WORTH_MOVING * host.device_us else ""


def facts_of_reference(compiled: Compiled, situation: Situation) -> Facts:
    """Returns the facts that the profile of the reference provides before any program exists."""
    profile = situation.reference
    time_us = profile.wall_us_per_iteration if profile else None
    busy, launches = (profile.device_busy, profile.launches_per_iteration) if profile else (None, None)
    floor_us = (situation.plan.floor_ms if situation.plan is not None else None) or compiled.plan.floor_ms
    floor_us = floor_us * 1e3
    spent = call_time(None, profile)
    waiting = busy is not None and busy < 0.5
    task = task_facts(situation.capture) if situation.capture is not None else None
    best = situation.best
    latest = best.profile if best is not None and best.profile is not None else profile  # a program may have dropped the reference's waits
    waits = latest.host.waits if latest is not None and latest.host is not None else None
    return Facts(
        device=compiled.figures.kind,
        bottleneck="launch" if waiting else "memory",
        precision=situation.settings.precision,
        program_us=time_us,
        headroom=time_us / floor_us if time_us and floor_us else None,
        launches=launches,
        device_busy=busy,
        host_share=spent.host_share if spent is not None else None,
        reductions=task.reductions if task is not None and task.structure is not None else None,
        products=bool(situation.capture.flops) if situation.capture is not None and situation.capture.flops is not None else None,
        scores=task.scores if task is not None else None,
        capability=compiled.figures.capability,
        **task_structure(task),
        waits=waits,
        faults=(WAITS_FAULT,) if waits is not None and waits >= 1 else (),
        units=compiled.figures.units,
        cache_bytes=compiled.figures.cache_bytes,
        unit_cache_bytes=compiled.figures.unit_cache_bytes if compiled.figures.kind == "cuda" else 0,
    )
