"""Reads PyTorch's message about a failed allocation of device memory."""

from __future__ import annotations

import re
from dataclasses import dataclass

_UNITS = {"KiB": 2.0**-20, "MiB": 2.0**-10, "GiB": 1.0}
_SIZE = r"([\d.]+) ([KMG]iB)"
_PATTERNS = {
    "asked": rf"Tried to allocate {_SIZE}",
    "total": rf"total capacity of {_SIZE}",
    "free": rf"of which {_SIZE} is free",
    "own": rf"this process has {_SIZE} memory in use",
}
FAIR_SHARE = 0.5  # share of the device's memory; a program that fits into it did not fail because of its own size


@dataclass(frozen=True)
class Allocation:
    """A failed allocation, in GiB: the requested size (0 if the message does not say), the device's memory, its free memory, and the memory that the
    process itself held."""

    asked: float
    total: float
    free: float
    own: float

    @property
    def others(self) -> float:
        """What other processes held."""
        return self.total - self.free - self.own

    @property
    def crowded_out(self) -> bool:
        """Returns whether the process would have fitted into its fair share of the device."""
        return 0 < self.asked <= FAIR_SHARE * self.total - self.own


def failed_allocation(message: str) -> Allocation | None:
    """Returns the sizes that PyTorch's `message` names, or None if it is about something else."""
    found = {name: re.search(pattern, message) for name, pattern in _PATTERNS.items()}
    sizes = {name: float(match[1]) * _UNITS[match[2]] for name, match in found.items() if match is not None}
    return Allocation(**{"asked": 0.0, **sizes}) if {"total", "free", "own"} <= set(sizes) else None
