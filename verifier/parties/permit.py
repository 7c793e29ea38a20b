"""An eventfd, shared by both sides, that holds one permit to give the device work.

A party takes the permit before it touches the device, and puts it back while it works on the host alone: importing torch, and in torch.compile's
compilations. While another judge measures, this party's judge takes the permit if it is free. Then the party need not be frozen, as it cannot reach
the device before its judge has put the permit back. Only code of this package takes and puts it: a process that runs a program closes its end first.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections.abc import Iterator


class Permit:
    """A permit. Safe from any thread, even while another one closes it."""

    def __init__(self, fd: int):
        self.fd = fd
        self._lock = threading.Lock()

    @classmethod
    def made(cls) -> Permit:
        """Makes a permit that nobody holds. Raises `OSError`."""
        return cls(os.eventfd(1, os.EFD_SEMAPHORE | os.EFD_NONBLOCK | os.EFD_CLOEXEC))

    def take_now(self) -> bool:
        """Takes the permit if it is free and returns whether it was."""
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
        """Puts the permit back while its holder works on the host alone. The device must be idle then."""
        self.put()
        try:
            yield
        finally:
            self.take()
