"""The physical floor of a task: no program can be faster than the device moves its bytes or, as the task states them, does its operations."""

from __future__ import annotations

from verifier.devices.base import Device


def floor_ms(device: Device, nbytes: int | None, flops: int | None, precision: str) -> tuple[float | None, str]:
    """The floor in milliseconds, and why it is null or partial. `nbytes`: inputs and weights read once, outputs written once."""
    ceiling = device.ceiling(precision)
    parts = []
    if nbytes and ceiling.bytes_per_second:
        parts.append(nbytes / ceiling.bytes_per_second)
    if flops and ceiling.flops_per_second:
        parts.append(flops / ceiling.flops_per_second)
    if not parts:
        return None, "the device's bandwidth and rate are not known"
    return max(parts) * 1e3, "" if flops else "from bytes alone: the task's operations have not been counted (run the job capture)"
