"""Lets several judges share a device. One judge measures at a time; meanwhile, everything that the other judges run is frozen.

It uses lock files. Every judge holds a shared lock on `floor` while its parties are allowed to run. A judge that wants to measure takes an exclusive
lock on `turn`. The other judges notice this within `LOOK` seconds; each lets requests in flight finish, freezes its parties (a control group as a
whole, otherwise every process with SIGSTOP) and releases `floor`. The first judge then takes an exclusive lock on `floor` and measures. A request's
time limit is paused while its party is frozen (`Gate.frozen_seconds`). Builds, captures and first calls of torch.compile take seconds, so they are
frozen midway. `room` is for verifications that fill much of the device's memory while they are timed. One judge holds it at a time, while the earlier
stages of the next verification continue. All locks are released when the process that holds them ends, so a dead judge never blocks another.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from verifier.devices.base import DeviceError
from verifier.judge.turns import Turns

LOOK = 0.01
PATIENCE = 900.0  # seconds to wait for each judge that measures first, which is far longer than a measurement takes
DRAIN = 0.02  # seconds between checks of whether the device is still working for a frozen process
CALM = 5  # number of consecutive checks that must find the device idle
LONGEST_DRAIN = 30.0  # seconds; work that lasts longer continues during the measurement


class Freezable(Protocol):
    def freeze(self) -> None: ...
    def thaw(self) -> None: ...


class Lock:
    """An advisory file lock that works between processes and between the threads of one process."""

    def __init__(self, path: Path):
        self._path = path
        self._fd = -1

    def take(self, shared: bool) -> bool:
        """Tries to take the lock without waiting and returns whether it succeeded. Raises `DeviceError`."""
        try:
            fd = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise DeviceError(f"{self._path}, which verifiers use to share a device, cannot be opened ({error.strerror}): remove it") from None
        try:
            fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            return False
        self._fd = fd
        return True

    def leave(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def sign(self) -> None:
        """Writes the holder and the start time into the file, for waiting judges."""
        with contextlib.suppress(OSError):  # if the disk is full, waiting judges may mistake several holders for one
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"{os.getpid()} {time.monotonic_ns()}".encode(), 0)

    def signature(self) -> bytes:
        with contextlib.suppress(OSError):
            return self._path.read_bytes()
        return b""

    @property
    def held(self) -> bool:
        return self._fd >= 0


class Gate:
    """The gate of one judge. `parties` are the processes that it freezes. Until `begin` is called, it only serialises measurements and freezes
    nothing."""

    def __init__(self, device: str, folder: Path | None = None):
        folder = folder or Path(tempfile.gettempdir())
        name = f"stitchwork-{os.getuid()}-{device.replace(':', '-')}"
        self._turn, self._asked = Lock(folder / f"{name}.turn"), Lock(folder / f"{name}.turn")
        self._floor, self._alone = Lock(folder / f"{name}.floor"), Lock(folder / f"{name}.floor")
        self._here, self._probe = Lock(folder / f"{name}.judges"), Lock(folder / f"{name}.judges")
        self._looking, self._room = Lock(folder / f"{name}.looking"), Lock(folder / f"{name}.room")
        self.turns = Turns.asked_for(device)
        self.called_off: Callable[[], bool] = lambda: False  # whether this judge's current job is no longer wanted
        self._state = threading.Condition()
        self._open = True  # whether this judge's threads may work on the device
        self._busy = 0  # number of threads that work on the device
        self._mine = False  # whether this judge is measuring or about to
        self._frozen: list[Freezable] = []
        self._closed_at: float | None = None
        self._closed_seconds = 0.0
        self._thread_is = threading.local()
        self._ended = threading.Event()
        self._watcher: threading.Thread | None = None
        self._parties: Callable[[], Sequence[Freezable]] = list
        self._rests: Callable[[], bool] = lambda: True

    def begin(self, parties: Callable[[], Sequence[Freezable]], rests: Callable[[], bool] = lambda: True) -> None:
        """Begins to watch for other judges. `rests` returns whether the device is currently idle."""
        self._parties, self._rests = parties, rests
        self._stay()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def end(self) -> None:
        self._ended.set()
        if self._watcher is not None:
            self._watcher.join()
        for lock in (self._asked, self._floor, self._alone, self._turn, self._here, self._room):
            lock.leave()

    def others(self) -> bool:
        """Returns whether another judge has begun to use the device and has not yet finished."""
        if self._watcher is None:
            return False
        while not self._looking.take(shared=False):  # two judges that check at the same time would not see each other
            time.sleep(LOOK / 10)
        try:
            self._here.leave()
            found = not self._probe.take(shared=False)
            self._probe.leave()
            self._stay()
        finally:
            self._looking.leave()
        return found

    def _stay(self) -> None:
        while not self._here.take(shared=True):  # another judge is checking at this moment
            time.sleep(LOOK / 10)

    # Called by the judge's threads

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """Marks this thread as working on the device, except while it is `idle`."""
        if self._watcher is None or getattr(self._thread_is, "working", False):
            yield
            return
        self._thread_is.working = True
        self._come()
        try:
            yield
        finally:
            self._thread_is.working = False
            self._go()

    @contextlib.contextmanager
    def idle(self) -> Iterator[None]:
        """Marks this thread as only waiting for something that may be frozen in the meantime. An exception is raised immediately, without waiting for
        the device."""
        if not getattr(self._thread_is, "working", False):
            yield
            return
        self._thread_is.working = False
        self._go()
        wait = False
        try:
            yield
            wait = True
        finally:
            self._come(wait)
            self._thread_is.working = True

    def point(self) -> None:
        """Blocks between two requests while another judge measures."""
        if not self._open and getattr(self._thread_is, "working", False):
            with self.idle():
                pass

    def frozen_seconds(self) -> float:
        """Returns the total seconds for which this judge's parties have been frozen."""
        with self._state:
            return self._closed_seconds + (time.monotonic() - self._closed_at if self._closed_at is not None else 0.0)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Gives this judge exclusive access to the device. Raises `DeviceError` if another judge does not release it, or if this judge's job is
        cancelled."""
        asked = turn = floor = begun = time.monotonic()
        self._queue(self._turn, self._take_turn)
        try:
            turn = time.monotonic()
            while not self._alone.take(shared=False):
                self._wait(turn + PATIENCE)
            floor = time.monotonic()
            if self.others():
                self.rests(LONGEST_DRAIN)
            with self._state:
                while self._closed_at is not None:  # its own parties were frozen until a moment ago
                    self._state.wait(LOOK)
            begun = time.monotonic()
            yield
        finally:
            self.turns.measured(asked, turn, floor, begun)
            with self._state:
                self._alone.leave()
                self._turn.leave()
                self._mine = False
                self._open = self._watcher is None  # closed until the watcher holds the floor again
        self.point()  # skipped after an exception, which is raised immediately

    @contextlib.contextmanager
    def room(self, waits: Callable[[], None] = lambda: None) -> Iterator[float]:
        """Takes `room`, which one judge of the device holds at a time. `waits` is called if another judge holds it. Yields the seconds spent waiting.
        Raises the same exceptions as `alone`."""
        if self._watcher is None:
            yield 0.0
            return
        asked = time.monotonic()
        if not self._taken(self._room):
            waits()
            self._queue(self._room, lambda: self._taken(self._room))
        try:
            yield time.monotonic() - asked
        finally:
            self._room.leave()

    def rests(self, seconds: float) -> bool:
        """Returns whether the device becomes idle within `seconds`. Work that a process submitted before it was frozen keeps running, perhaps for
        seconds."""
        calm, deadline = 0, time.monotonic() + seconds
        while calm < CALM and time.monotonic() < deadline:
            calm = calm + 1 if self._rests() else 0
            time.sleep(DRAIN)
        return calm >= CALM

    def _take_turn(self) -> bool:
        with self._state:
            self._mine = self._taken(self._turn)
            return self._mine

    def _taken(self, lock: Lock) -> bool:
        taken = lock.take(shared=False)
        if taken:
            lock.sign()
        return taken

    def _queue(self, lock: Lock, take: Callable[[], bool]) -> None:
        """Waits until `take` succeeds, with the same patience for each earlier holder."""
        deadline, before = time.monotonic() + PATIENCE, b""
        with self.idle():
            while not take():
                if (holder := lock.signature()) != before:
                    deadline, before = time.monotonic() + PATIENCE, holder
                self._wait(deadline)

    def _wait(self, deadline: float) -> None:
        if self.called_off():
            raise DeviceError("the job was called off while it waited for the device")
        if time.monotonic() > deadline:
            raise DeviceError(f"another verifier has kept the device busy for {PATIENCE / 60:.0f} minutes: check what it does, or end it")
        time.sleep(LOOK)

    def _come(self, wait: bool = True) -> None:
        with self._state:
            while wait and not self._open and not self._mine and not self.called_off():
                self._state.wait(LOOK * 10)
            self._busy += 1

    def _go(self) -> None:
        with self._state:
            self._busy -= 1
            self._state.notify_all()

    # The watcher

    def _watch(self) -> None:
        while not self._ended.wait(LOOK):
            closing = False
            with contextlib.suppress(DeviceError), self._state:  # a lock that cannot be opened now is tried again
                closing = self._look()
            if closing:
                self._close()
        self._thaw()
        with self._state:
            self._open = True
            self._state.notify_all()

    def _look(self) -> bool:
        """Returns whether another judge wants to measure while this one still has the floor."""
        if self._mine:
            self._floor.leave()
            self._reopen()
            return False
        if self._floor.held:
            if self._asked.take(shared=True):
                self._asked.leave()
                return False
            return True
        if self._asked.take(shared=True):
            if self._floor.take(shared=True):
                self._reopen()
            self._asked.leave()
            return False
        self._freeze()  # parties that other threads have started since then
        return self._closed_at is None  # another judge got its turn before this judge had the floor back

    def _close(self) -> None:
        """Waits until this judge's threads have stopped, and freezes its parties."""
        seen, requests = time.monotonic(), self.turns.closing()
        with self._state:
            self._open = False
            while self._busy and not self._mine and not self._ended.is_set():
                self._state.wait(LOOK)
            if self._mine:  # the other judge finished before this judge had stopped
                return
            self._closed_at = time.monotonic()  # until this point, everything kept running, and requests' time limits counted
        self._freeze()
        self.turns.closed(seen, self._closed_at, requests)
        self._floor.leave()

    def _freeze(self) -> None:
        for party in self._parties():
            if all(party is not other for other in self._frozen):
                party.freeze()
                self._frozen.append(party)

    def _reopen(self) -> None:
        self._thaw()
        if self._closed_at is not None:
            self._closed_seconds += time.monotonic() - self._closed_at
            self._closed_at = None
            self.turns.opened()
        self._open = True
        self._state.notify_all()

    def _thaw(self) -> None:
        frozen, self._frozen = self._frozen, []
        for party in frozen:
            party.thaw()
