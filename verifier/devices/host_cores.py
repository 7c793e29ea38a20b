"""Finds out which processors of the host are threads of the same core."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

TOPOLOGY = Path("/sys/devices/system/cpu")


def cores(processors: Iterable[int], topology: Path = TOPOLOGY) -> list[list[int]]:
    """Returns processor numbers grouped by core; cores of a socket lie side by side. Linux often numbers the second threads of all cores after all
    first ones, so parts of a host by number would share cores, and work on one thread slows the other. A container may allow only one thread of a
    core. A host that does not tell is taken to have one thread per core."""
    wanted = sorted(processors)
    places = {}
    for number in wanted:
        folder = topology / f"cpu{number}" / "topology"
        socket, first = 0, number
        with contextlib.suppress(OSError, ValueError):
            socket = int((folder / "physical_package_id").read_text())
            first = min(numbers((folder / "thread_siblings_list").read_text()))
        places[number] = (socket, first, number)
    ordered = sorted(wanted, key=places.__getitem__)
    return [list(threads) for _, threads in groupby(ordered, key=lambda number: places[number][:2])]


def numbers(text: str) -> list[int]:
    """Parses a list as Linux writes it: "0-2,8" is 0, 1, 2 and 8. Raises `ValueError`."""
    found: list[int] = []
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found
