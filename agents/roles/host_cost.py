"""Describes which part of a call's idle time no program can remove: the clock's own exchange, and the entry, launch and wait of any call."""

from __future__ import annotations

from agents.roles.names import short_name
from agents.roles.situation import Attempt
from verifier.profiling.diagnosing.call_time import CallTime, call_time, us
from verifier.profiling.diagnosing.host_faults import HOST_FLOOR_US
from verifier.report import Report

WORTH = 0.01  # minimum share of a call before the device's first work at which its parts are told
LARGEST = 3  # number of kernels named in one sentence about a call
WORTH_A_GAP = 0.05  # minimum share of a call between pieces of work at which missing names are mentioned


def at_call_time(spent: CallTime, call_us: float) -> CallTime:
    """Returns the same call as it would be without a profiler, which slows the host but hardly the device: the device's time is unchanged, and the
    idle time shrinks, each part in proportion."""
    scale = (call_us - spent.device_us) / spent.host_us if spent.host_us else 0.0
    parts = {name: value * scale for name in ("before_us", "gaps_us", "after_us") if (value := getattr(spent, name)) is not None}
    gaps = {name: idle * scale for name, idle in spent.gaps.items()}
    return spent.model_copy(update={"call_us": call_us, "host_us": call_us - spent.device_us, "gaps": gaps, **parts})


def host_text(report: Report | None, spent: CallTime | None) -> str:
    """Returns the cost of an empty exchange and of any call on this host, or "" if the device hardly waits for the host's first launch."""
    if report is None or report.timing is None or spent is None or spent.before_us is None:
        return ""
    said = []
    if spent.before_us >= WORTH * spent.call_us:
        trip_ms = report.timing.round_trip_ms
        clock = (
            f"At most {us(1e3 * trip_ms)} of a call are the clock's (an exchange without a call on this host), and about" if trip_ms > 0 else "About"
        )
        said.append(f"{clock} {HOST_FLOOR_US:.0f} us of the host are in any call (an estimate: Python's entry, one launch, the final wait).")
    if (spent.gaps_us or 0.0) >= WORTH_A_GAP * spent.call_us and not spent.gaps:
        said.append("Between which pieces of work the device waits was not recorded.")
    return " ".join(said)


def spent_text(attempt: Attempt | None) -> str:
    """Describes in one sentence how a program's call divides into its largest kernels and the time for which the device waits; a reason for a new
    plan can be compared with it. Returns "" if that is unknown."""
    report = attempt.report if attempt is not None else None
    spent = call_time(report, attempt.profile) if attempt is not None and report is not None else None
    if attempt is None or report is None or spent is None:
        return ""
    times: dict[str, float] = {}
    for kernel in report.kernels:
        times[short_name(kernel.name)] = times.get(short_name(kernel.name), 0.0) + 1e3 * kernel.ms
    largest = sorted(times, key=lambda name: -times[name])[:LARGEST]
    kernels = f" ({', '.join(f'{us(times[name])} in {name}' for name in largest)})" if largest else ""
    said = f"Measured on candidate {attempt.number}: of {us(spent.call_us)} a call the device works {us(spent.device_us)}{kernels}"
    parts = [(spent.gaps_us, "between pieces of work"), (spent.before_us, "before the first")]
    idle = " and ".join(f"{us(value)} {where}" for value, where in parts if value is not None)
    return f"{said}; it waits {idle}." if idle else f"{said}."
