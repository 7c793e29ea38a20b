"""Binds a party's threads to processors. The judge controls the binding from outside; a party is not allowed to move itself (`seccomp.py`). A program
that had a processor to itself would benefit from warm caches, whereas eager shares its processor with all other sides and starts with cold caches."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from verifier.confinement.spawned import Spawned
from verifier.devices.base import Device

ROUNDS = 50  # maximum number of times that the list of threads is read
AUTOGRAD = b"pt_autograd"  # PyTorch's name for autograd threads


class Binding:
    """Binds one party either to the processors on which its device times sides (`timed_on`), or to the other processors (`wide_on`), on which all
    parties start. Both lists are empty if parties are not bound. On a host that forbids binding, threads stay where they are."""

    def __init__(self, spawned: Spawned, device: Device):
        self.spawned = spawned
        self.device = device
        self._stands_on: int | None = None
        self._main: int | None = None

    def spread(self, wide: bool) -> None:
        """Binds all threads of all the party's processes, either to the processors used for timing or, as at startup, to the others."""
        chosen = self.device.wide_on if wide else self.device.timed_on
        self._stands_on = None
        bound: set[int] = set()
        for _ in range(ROUNDS if chosen else 0):  # any thread that an unbound thread starts in the meantime appears in the next pass
            fresh = {thread for process in self.spawned.members() for thread in threads_of(process)} - bound
            if not fresh:
                return
            bind(fresh, chosen)
            bound |= fresh

    def stand_on(self, number: int) -> None:
        """Binds the party's main thread and autograd's threads, which launch the backward pass, to a single timing processor. Its other threads stay
        on all timing processors; any thread that a call starts inherits the single processor."""
        timed = self.device.stands_on
        if number == self._stands_on or not timed:
            return
        self._stands_on = number
        self._main = self._main or self.spawned.main_pid()
        if self._main is not None:
            bind([self._main, *autograd_threads(self._main)], [timed[number % len(timed)]])


def bind(threads: Iterable[int], processors: list[int]) -> None:
    for thread in threads:
        with contextlib.suppress(OSError):  # the thread has ended, or a container does not allow these processors
            os.sched_setaffinity(thread, processors)


def threads_of(process: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(thread) for thread in os.listdir(f"/proc/{process}/task")]
    return []


def autograd_threads(process: int) -> list[int]:
    found = []
    for thread in threads_of(process):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{process}/task/{thread}/comm").read_bytes().startswith(AUTOGRAD):  # a program's thread names might not be text
                found.append(thread)
    return found
