"""Divides the time of a call into device work and the time for which the device waits for the host: before its first work, between pieces of work,
and after the last piece.

The clock gives the duration of a call, and the timeline shows when the device worked. A profiler slows the host but hardly affects the device. Device
work is therefore taken as recorded, the rest of the clock time is attributed to the host, and the timeline determines how that rest is divided.
"""

from __future__ import annotations

from pydantic import BaseModel

from verifier.jobs import Profile
from verifier.profiling.own_kernels import base_name
from verifier.report import Report

WORTH_NAMING, LONGEST = 0.01, 60  # minimum share of a call at which a gap is named; maximum length of a kernel's name
COPIES = ("Memcpy", "Memset", "[CUDA mem")  # name prefixes of device work other than kernels


class CallTime(BaseModel):
    """The parts of one call in microseconds; null for a part without a timeline."""

    call_us: float
    device_us: float  # time during which anything ran on the device
    kernel_us: float  # sum over kernels and copies; exceeds `device_us` if they overlap
    host_us: float  # time during which the device was idle
    before_us: float | None = None  # part of the idle time before the first work on the device
    before_calls: float | None = None  # share of `before_us` in CUDA calls before the first launch: allocations, copies, attributes
    before_launch: float | None = None  # share of `before_us` from the first launch to the device's start
    gaps_us: float | None = None  # between pieces of device work
    gaps: dict[str, float] = {}  # the longest parts of `gaps_us`, by the names of the kernels and copies that they precede
    after_us: float | None = None  # from the end of the last piece of work to the return
    launches: float | None = None
    moves: float = 0.0  # copies and fills by the device, which do not count as launches
    kernels: float | None = None  # number of kernels that run, including those inside a CUDA graph
    waits: float | None = None  # number of times the program waited for the device
    wait_us: float | None = None  # time that the host spent in these waits

    @property
    def host_share(self) -> float:
        return self.host_us / self.call_us if self.call_us else 0.0

    def says(self) -> str:
        """Describes the parts in one or two sentences for humans and models."""
        said = f"Of a call of {us(self.call_us)} the device works {us(self.device_us)} and has nothing to do for {us(self.host_us)}"
        said += f" ({100 * self.host_share:.0f} %)"
        known = [
            (self.before_us, f"before its first work{self._before()}"),
            (self.gaps_us, f"in all between pieces of work{self._within()}"),
            (self.after_us, "after its last"),
        ]
        parts = [f"{us(value)} {where}" for value, where in known if value is not None]
        said += f": {', '.join(parts)} (as a timeline divides it)." if parts else ". No timeline says where."
        if self.kernel_us > 1.05 * self.device_us:
            said += f" Kernels overlap: they take {us(self.kernel_us)} together."
        if self.launches is not None:
            moved = f" and {self.moves:.0f} copies or fills" if self.moves >= 0.5 else ""
            said += f" {self.launches:.0f} launch{'es' if round(self.launches) != 1 else ''}{moved} a call{self._replayed()}."
        if self.waits is not None:
            said += f" The host waits for the device {self.waits:.0f} times within the call ({us(self.wait_us or 0)})." if self.waits >= 0.5 else ""
            said += " The host never waits for the device within the call." if self.waits < 0.5 else ""
        return said

    def _before(self) -> str:
        """Describes what the time before the first work consists of."""
        if self.before_calls is None or self.before_launch is None:
            return " (not recorded how much of it is Python, allocation or the launch itself)" if self.before_us else ""
        own = max(1 - self.before_calls - self.before_launch, 0.0)
        return (
            f" (Python, PyTorch's operators and its allocator {100 * own:.0f} %, CUDA calls ahead of the first launch "
            f"{100 * self.before_calls:.0f} %, that launch's way to the device {100 * self.before_launch:.0f} %)"
        )

    def _within(self) -> str:
        """Names the kernels and copies before which the device waits longest; "" if they are unknown or the gaps are negligible."""
        named = [(name, idle) for name, idle in self.gaps.items() if idle >= WORTH_NAMING * self.call_us]
        return f" (longest before {', '.join(f'{_brief(name)} {us(idle)}' for name, idle in named)})" if named else ""

    def _replayed(self) -> str:
        """If more kernels run than are launched, states that a launch replays a CUDA graph."""
        if self.launches is None or self.kernels is None or self.kernels < self.launches + 1:
            return ""
        return f", {self.kernels:.0f} kernels: the replay of a CUDA graph counts as one launch"


def call_time(report: Report | None, profile: Profile | None) -> CallTime | None:
    """Breaks down the time of one call of a timed program on a GPU, or of the reference if there is no report. Returns null if the device time is
    unknown."""
    host = profile.host if profile is not None else None
    cuda = report.environment.device.startswith("cuda") if report is not None else host is not None
    seen = sum(kernel.ms for kernel in report.kernels) * 1e3 if report is not None else 0.0
    device = host.device_us if host is not None and host.device_us > 0 else seen
    timed = report.timing.program_ms * 1e3 if report is not None and report.timing is not None else None
    call = timed if timed is not None else profile.wall_us_per_iteration if profile is not None else 0.0
    if not cuda or not device or not call:
        return None
    device = min(device, call)
    found = CallTime(call_us=call, device_us=device, kernel_us=max(host.kernel_us if host else seen, device), host_us=call - device)
    if profile is not None:
        found.launches = profile.launches_per_iteration
        found.kernels = sum(k.calls for k in profile.kernels if not k.name.startswith(COPIES)) / max(profile.iterations, 1)
    if host is None:
        return found
    parts = (host.begin_us, host.gap_us or 0.0, host.after_us or 0.0)
    scale = found.host_us / total if (total := sum(parts)) > 0 else 0.0
    if host.gap_us is not None:
        found.before_us, found.gaps_us, found.after_us = (part * scale for part in parts)
        found.gaps = {name: idle * scale for name, idle in host.gaps.items()}
    found.moves = sum(copy.count for copy in host.copies.values()) + host.fills.count
    if host.begin_us > 0 and host.begin_calls_us is not None and host.begin_launch_us is not None:
        found.before_calls, found.before_launch = host.begin_calls_us / host.begin_us, host.begin_launch_us / host.begin_us
    found.waits, found.wait_us = host.waits, host.wait_us
    return found


def _brief(name: str) -> str:
    return base_name(name).rsplit("::", 1)[-1][:LONGEST] if not name.startswith(COPIES) else name


def us(value: float) -> str:
    return f"{value:.3g} us" if value < 1000 else f"{value / 1e3:.3g} ms"
