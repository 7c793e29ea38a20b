"""The roofline floor of a task: no program can be faster than the device can move the task's bytes or perform its operations as stated."""

from __future__ import annotations

from verifier.devices.base import Device

SPLIT = 3  # TF32 products per product of fp32 accuracy: the minimum work for tensor cores


def floor_ms(device: Device, nbytes: int | None, flops: int | None, precision: str) -> tuple[float | None, str]:
    """Returns the floor in milliseconds, and the reason if it is null or partial. `nbytes` counts inputs and weights read once, and outputs written
    once."""
    ceiling = device.ceiling(precision)
    rate = ceiling.flops_per_second
    if rate and precision == "fp32-strict":
        rate = max(rate, (device.ceiling("tf32").flops_per_second or 0.0) / SPLIT)
    parts = []
    if nbytes and ceiling.bytes_per_second:
        parts.append(nbytes / ceiling.bytes_per_second)
    if flops and rate:
        parts.append(flops / rate)
    if not parts:
        return None, "the device's bandwidth and rate are not known"
    return max(parts) * 1e3, "" if flops else "from bytes alone: the task's operations have not been counted (run the job capture)"
