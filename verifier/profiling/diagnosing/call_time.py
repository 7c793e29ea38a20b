"""Divides the time of a call into device work and the device's waits for the host: before its first work, between pieces of work, and after the last.

The clock gives the duration of a call, and the timeline shows when the device worked. A profiler slows the host but hardly affects the device. Device
work is therefore taken as recorded, the rest of the clock time is attributed to the host, and the timeline provides its proportions.
"""

from __future__ import annotations

from pydantic import BaseModel

from verifier.jobs import Profile
from verifier.report import Report


class CallTime(BaseModel):
    """The parts of one call in microseconds; null for a part that no timeline shows."""

    call_us: float
    device_us: float  # time in which anything ran on the device
    kernel_us: float  # sum over kernels and copies: exceeds `device_us` if they overlap
    host_us: float  # time in which the device was idle
    before_us: float | None = None  # part of the idle time: until the first work on the device
    gaps_us: float | None = None  # between pieces of device work
    after_us: float | None = None  # from the end of the last piece to the return
    launches: float | None = None
    waits: float | None = None  # number of times the program waited for the device
    wait_us: float | None = None  # time that the host spent in these waits

    @property
    def host_share(self) -> float:
        return self.host_us / self.call_us if self.call_us else 0.0

    def says(self) -> str:
        """Describes the parts in one or two sentences, for people and models."""
        said = f"Of a call of {us(self.call_us)} the device works {us(self.device_us)} and has nothing to do for {us(self.host_us)}"
        said += f" ({100 * self.host_share:.0f} %)"
        known = [(self.before_us, "before its first work"), (self.gaps_us, "between two pieces of work"), (self.after_us, "after its last")]
        parts = [f"{us(value)} {where}" for value, where in known if value is not None]
        said += f": {', '.join(parts)}." if parts else ". No timeline shows where."
        if self.kernel_us > 1.05 * self.device_us:
            said += f" Kernels overlap: they take {us(self.kernel_us)} together."
        if self.launches is not None:
            said += f" {self.launches:.0f} launch{'es' if round(self.launches) != 1 else ''} a call, the replay of a CUDA graph counted as one."
        if self.waits is not None:
            said += f" The host waits for the device {self.waits:.0f} times within the call ({us(self.wait_us or 0)})." if self.waits >= 0.5 else ""
            said += " The host never waits for the device within the call." if self.waits < 0.5 else ""
        return said


def call_time(report: Report | None, profile: Profile | None) -> CallTime | None:
    """Divides one call of a timed program on a GPU, or of the reference if there is no report. Returns null if nothing is known about the device
    time."""
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
    found.launches = profile.launches_per_iteration if profile is not None else None
    if host is None:
        return found
    parts = (host.begin_us, host.gap_us or 0.0, host.after_us or 0.0)
    scale = found.host_us / total if (total := sum(parts)) > 0 else 0.0
    if host.gap_us is not None:
        found.before_us, found.gaps_us, found.after_us = (part * scale for part in parts)
    found.waits, found.wait_us = host.waits, host.wait_us
    return found


def us(value: float) -> str:
    return f"{value:.3g} us" if value < 1000 else f"{value / 1e3:.3g} ms"
