"""Computes how many warps of a kernel can be resident on a multiprocessor, given the limits of its architecture.

Source of the limits: CUDA C++ Programming Guide 13.0, "Compute Capabilities", the table "Technical Specifications per Compute Capability". Source of
the allocation units for registers and shared memory: Nsight Compute's occupancy calculator.
"""

from __future__ import annotations

from dataclasses import dataclass

WARP = 32
REGISTERS = 65536  # maxima per multiprocessor and per block, since sm_50
_REGISTER_UNIT = 256  # registers are allocated to a warp in multiples of this number
_REGISTER_STEP = 8  # per thread
_WARP_STEP = 4  # warps are allocated in groups of four, one per scheduler


@dataclass(frozen=True)
class Limits:
    """Limits of one multiprocessor, with shared memory in bytes."""

    warps: int
    blocks: int
    shared: int
    shared_block: int  # maximum per block (opt-in)
    shared_unit: int
    shared_reserved: int  # reserved by the system per block


_KIB = 1024
LIMITS: dict[int, Limits] = {
    70: Limits(64, 32, 96 * _KIB, 96 * _KIB, 256, 0),
    75: Limits(32, 16, 64 * _KIB, 64 * _KIB, 256, 0),
    80: Limits(64, 32, 164 * _KIB, 163 * _KIB, 128, _KIB),
    86: Limits(48, 16, 100 * _KIB, 99 * _KIB, 128, _KIB),
    87: Limits(48, 16, 164 * _KIB, 163 * _KIB, 128, _KIB),
    89: Limits(48, 24, 100 * _KIB, 99 * _KIB, 128, _KIB),
    90: Limits(64, 32, 228 * _KIB, 227 * _KIB, 128, _KIB),
    100: Limits(64, 32, 228 * _KIB, 227 * _KIB, 128, _KIB),
    103: Limits(64, 32, 228 * _KIB, 227 * _KIB, 128, _KIB),
    110: Limits(48, 24, 228 * _KIB, 227 * _KIB, 128, _KIB),
    120: Limits(48, 24, 100 * _KIB, 99 * _KIB, 128, _KIB),
    121: Limits(48, 24, 100 * _KIB, 99 * _KIB, 128, _KIB),
}


@dataclass(frozen=True)
class Occupancy:
    """The occupancy of a multiprocessor. `share` is the ratio of resident warps to the warps that the multiprocessor can hold, `limits` gives the
    number of blocks that each resource allows, and `by` is the scarcest resource."""

    blocks: int
    warps: int
    share: float
    by: str  # "blocks", "warps", "registers", "shared memory"
    limits: dict[str, int]


def occupancy(arch: int, threads: int, registers: int, shared: int) -> Occupancy | None:
    """Computes the theoretical occupancy for blocks of `threads` threads with `shared` bytes each (static and dynamic); null for an unknown
    architecture or an impossible block."""
    device = LIMITS.get(arch)
    if device is None or not 0 < threads <= 1024:
        return None
    warps = -(-threads // WARP)
    limits = {"blocks": device.blocks, "warps": device.warps // warps}
    if registers:
        per_warp = _up(_up(registers, _REGISTER_STEP) * WARP, _REGISTER_UNIT)
        fitting = REGISTERS // per_warp // _WARP_STEP * _WARP_STEP
        limits["registers"] = fitting // warps
    used = _up(shared + device.shared_reserved, device.shared_unit)
    if used:
        limits["shared memory"] = device.shared // used if shared <= device.shared_block else 0
    by = min(limits, key=lambda name: limits[name])
    blocks = limits[by]
    return Occupancy(blocks, blocks * warps, blocks * warps / device.warps, by, limits)


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
