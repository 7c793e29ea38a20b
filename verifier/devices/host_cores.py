"""Determines which processors of the host are threads of the same core."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

TOPOLOGY = Path("/sys/devices/system/cpu")


def cores(processors: Iterable[int], topology: Path = TOPOLOGY) -> list[list[int]]:
    """Returns processor numbers grouped by core; the cores of a socket are adjacent. Linux often numbers the second threads of all cores after all
    the first threads. Therefore, parts of a host that are chosen by number would share cores, and work on one thread of a core slows the other. A
    container may allow only one thread per core. A host that does not report its topology is assumed to have one thread per core."""
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
    """Parses a list in Linux format; for example, "0-2,8" means 0, 1, 2 and 8. Raises `ValueError`."""
    found: list[int] = []
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found
