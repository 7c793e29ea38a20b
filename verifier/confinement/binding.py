"""Binds a party's threads to processors. The judge decides from outside, and a party may not move itself (`seccomp.py`): a program that kept a
processor to itself would find its caches warm, where eager, which shares one with all sides, finds them cold."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from verifier.confinement.spawned import Spawned
from verifier.devices.base import Device

ROUNDS = 50  # times that the list of threads is read
AUTOGRAD = b"pt_autograd"  # how PyTorch names its threads


class Binding:
    """Binds one party either to the processors of its device on which sides are timed (`timed_on`) or to the others (`wide_on`), on which all parties
    start. Both are empty where parties are not bound. On a host that forbids binding, threads stay where they are."""

    def __init__(self, spawned: Spawned, device: Device):
        self.spawned = spawned
        self.device = device
        self._stands_on: int | None = None
        self._main: int | None = None

    def spread(self, wide: bool) -> None:
        """Binds all threads of all its processes to the processors on which nothing is timed, as at its start, or only to those on which it is
        timed."""
        chosen = self.device.wide_on if wide else self.device.timed_on
        self._stands_on = None
        bound: set[int] = set()
        for _ in range(ROUNDS if chosen else 0):  # a thread that an unbound thread started meanwhile appears on the next pass
            fresh = {thread for process in self.spawned.members() for thread in threads_of(process)} - bound
            if not fresh:
                return
            bind(fresh, chosen)
            bound |= fresh

    def stand_on(self, number: int) -> None:
        """Binds its main thread and autograd's threads, which launch a backward pass, to one of the processors on which it is timed. Its other
        threads keep all of them; a thread that a call starts inherits the one."""
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
            if Path(f"/proc/{process}/task/{thread}/comm").read_bytes().startswith(AUTOGRAD):  # a program's thread names may not be text
                found.append(thread)
    return found
