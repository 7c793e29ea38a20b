"""Reads the client's frames in a separate thread. As a result, a cancellation reaches a running job, and everything ends when the client
disconnects."""

from __future__ import annotations

import os
import queue
import threading
from typing import Any

from verifier.channel import Channel, ChannelError, Frame
from verifier.judge.pool import Pool

GRACE_SECONDS = 5.0  # seconds that a job has to notice that the client has disconnected


class Inbox:
    def __init__(self, channel: Channel, pool: Pool, first: Frame | None = None):
        """Sets up the inbox. `first` is a job that was read before the inbox existed."""
        self.channel = channel
        self.pool = pool
        self._jobs: queue.Queue[Frame | None] = queue.Queue()
        self._waiting: dict[int, Frame] = {}
        self._current: int | None = None
        self._lock = threading.Lock()
        if first is not None:
            self._take_in(first)

    def begin(self) -> None:
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def empty(self) -> bool:
        return self._jobs.empty()

    def next(self) -> Frame | None:
        """Returns the next job that its client still wants, and marks it as running. Returns None once the client is gone."""
        while (frame := self._jobs.get()) is not None:
            with self._lock:
                if frame.message.get("cancelled"):
                    continue
                self._current, self.pool.cancelled = frame.integer("id"), False
            return frame
        return None

    def done(self) -> bool:
        """Marks the running job as finished, so a later cancellation has no effect. Returns whether a cancellation arrived before this point."""
        with self._lock:
            self._current = None
            return self.pool.cancelled

    def send(self, message: dict[str, Any], raw: bytes = b"") -> None:
        try:
            self.channel.send(message, raw)
        except ChannelError:
            pass  # the reading thread has also noticed it

    def _take_in(self, frame: Frame) -> None:
        self._waiting = {frame.integer("id"): frame}
        self._jobs.put(frame)

    def _read(self) -> None:
        while True:
            try:
                frame = self.channel.receive(None)
            except ChannelError:
                self._jobs.put(None)
                self.pool.cancel()
                # Confined processes die with this process, so a job that does not notice the disconnection must not keep this process alive.
                threading.Timer(GRACE_SECONDS, os._exit, [1]).start()
                return
            if frame.text("type") == "cancel":
                self._cancel(frame.integer("id"))
            else:
                self._take_in(frame)

    def _cancel(self, number: int) -> None:
        with self._lock:
            if self._current == number:
                self.pool.cancel()
            elif number in self._waiting:
                self._waiting[number].message["cancelled"] = True
