"""Describes which part of a call's idle time no program can remove: the clock's own exchange, and the entry, launch and wait of any call."""

from __future__ import annotations

from verifier.profiling.diagnosing.call_time import CallTime, us
from verifier.profiling.diagnosing.host_faults import HOST_FLOOR_US
from verifier.report import Report

WORTH = 0.01  # minimum share of a call before the device's first work at which its parts are told
WORTH_A_GAP = 0.05  # minimum share of a call between pieces of work at which missing names are mentioned


def at_call_time(spent: CallTime, call_us: float) -> CallTime:
    """Returns the same call without a profiler, which slows the host and hardly the device: the device's time stays, and the idle time shrinks, with
    its parts in proportion."""
    scale = (call_us - spent.device_us) / spent.host_us if spent.host_us else 0.0
    parts = {name: value * scale for name in ("before_us", "gaps_us", "after_us") if (value := getattr(spent, name)) is not None}
    gaps = {name: idle * scale for name, idle in spent.gaps.items()}
    return spent.model_copy(update={"call_us": call_us, "host_us": call_us - spent.device_us, "gaps": gaps, **parts})


def host_text(report: Report | None, spent: CallTime | None) -> str:
    """Returns what an empty exchange costs on this host and what any call costs, or "" if the device hardly waits for the host's first launch."""
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
