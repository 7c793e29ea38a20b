"""An eventfd, shared by both sides, that holds a single permit to submit work to the device.

A party takes the permit before it touches the device, and returns it during host-only work: importing torch and compiling with torch.compile. While
another judge measures, this party's judge takes the permit if it is free. The party then does not have to be frozen, because it cannot use the device
until its judge returns the permit. Only code in this package takes and returns the permit: a process that runs a program closes its end first.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections.abc import Iterator


class Permit:
    """A permit. It can be used from any thread, even while another thread closes it."""

    def __init__(self, fd: int):
        self.fd = fd
        self._lock = threading.Lock()

    @classmethod
    def made(cls) -> Permit:
        """Creates a permit that nobody holds. Raises `OSError`."""
        return cls(os.eventfd(1, os.EFD_SEMAPHORE | os.EFD_NONBLOCK | os.EFD_CLOEXEC))

    def take_now(self) -> bool:
        """Takes the permit if it is free, and returns whether it was."""
        with self._lock, contextlib.suppress(BlockingIOError):
            if self.fd >= 0:
                os.eventfd_read(self.fd)
                return True
        return False

    def take(self) -> None:
        """Waits for the permit and takes it."""
        waiting = select.poll()
        waiting.register(self.fd, select.POLLIN)
        while not self.take_now():
            waiting.poll()

    def put(self) -> None:
        with self._lock:
            if self.fd >= 0:
                os.eventfd_write(self.fd, 1)

    def close(self) -> None:
        with self._lock:
            fd, self.fd = self.fd, -1
            if fd >= 0:
                os.close(fd)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        self.take()
        try:
            yield
        finally:
            self.put()

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """Releases the permit while its holder does host-only work. The device must be idle at that point."""
        self.put()
        try:
            yield
        finally:
            self.take()
