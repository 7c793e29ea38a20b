"""Measures how long a party's threads wait for a processor, using the kernel's own counters. The time of a preempted call says nothing about the
program."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from verifier.confinement.binding import threads_of
from verifier.confinement.spawned import Spawned


def waits_ns(files: list[int]) -> dict[int, int]:
    """Returns the time in ns that the thread behind each open file has spent runnable but not running. Threads that have ended are left out."""
    found = {}
    for file in files:
        with contextlib.suppress(OSError, IndexError, ValueError):  # a thread that has ended
            found[file] = int(os.pread(file, 128, 0).split()[1])
    return found


def longest_ns(before: dict[int, int], after: dict[int, int]) -> int:
    """Returns the longest time that one thread has waited between two readings. Threads wait side by side, so a call is not delayed by the sum."""
    return max((waited - before[file] for file, waited in after.items() if file in before), default=0)


@contextlib.contextmanager
def queueing(spawned: Spawned) -> Iterator[list[int]]:
    """Opens one file per thread of the party's interpreter. The second number in each file is the time in ns during which the thread was runnable but
    not running. Returns an empty list if the kernel does not provide these counters."""
    main, files = spawned.main_pid(), []
    try:
        for thread in threads_of(main) if main is not None else []:
            with contextlib.suppress(OSError):
                files.append(os.open(f"/proc/{main}/task/{thread}/schedstat", os.O_RDONLY | os.O_CLOEXEC))
        yield files
    finally:
        for file in files:
            os.close(file)
