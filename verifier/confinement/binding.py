"""On which processors a party's threads run. The judge says it, from outside: a party may not move itself (`seccomp.py`), as a program that
kept a processor of its own would find its caches warm where eager, which shares one with all sides, finds them cold."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from verifier.confinement.spawned import Spawned
from verifier.devices.base import Device

ROUNDS = 50  # looks at which threads there are
AUTOGRAD = b"pt_autograd"  # how PyTorch names its threads


class Binding:
    """Of one party: to the processors of its device on which sides are timed (`timed_on`), or to the others (`wide_on`), on which all come up. Both
    are empty where parties are bound to none. A host that lets nobody be bound leaves them where they are."""

    def __init__(self, spawned: Spawned, device: Device):
        self.spawned = spawned
        self.device = device
        self._stands_on: int | None = None
        self._main: int | None = None

    def spread(self, wide: bool) -> None:
        """All threads of all its processes: to the processors that nobody is timed on, as from its start, or to those alone on which it is."""
        chosen = self.device.wide_on if wide else self.device.timed_on
        self._stands_on = None
        bound: set[int] = set()
        for _ in range(ROUNDS if chosen else 0):  # a thread that was started meanwhile by one not yet bound is there on the next look
            fresh = {thread for process in self.spawned.members() for thread in threads_of(process)} - bound
            if not fresh:
                return
            bind(fresh, chosen)
            bound |= fresh

    def stand_on(self, number: int) -> None:
        """Its main thread and those of autograd, which launch a backward pass, stay on one of the processors on which it is timed. Other threads keep
        all of those, but what a call starts inherits the one."""
        timed = self.device.timed_on
        if number == self._stands_on or not timed:
            return
        self._stands_on = number
        self._main = self._main or self.spawned.main_pid()
        if self._main is not None:
            bind([self._main, *autograd_threads(self._main)], [timed[number % len(timed)]])


def bind(threads: Iterable[int], processors: list[int]) -> None:
    for thread in threads:
        with contextlib.suppress(OSError):  # it has ended, or a container allows others
            os.sched_setaffinity(thread, processors)


def threads_of(process: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(thread) for thread in os.listdir(f"/proc/{process}/task")]
    return []


def autograd_threads(process: int) -> list[int]:
    found = []
    for thread in threads_of(process):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{process}/task/{thread}/comm").read_bytes().startswith(AUTOGRAD):  # a program's may be no text
                found.append(thread)
    return found
