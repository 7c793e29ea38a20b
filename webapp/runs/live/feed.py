"""Keeps the latest events of one run in memory. They are read and encoded into frames once, however many followers there are."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from itertools import islice

TAIL_EVENTS = 1000  # number of events of a run that are kept for its followers
TAIL_CHARACTERS = 2_000_000
MOST_BATCHES = 8  # number of encoded batches that are kept for the next follower at the same position
BATCH_EVENTS = 500
BATCH_BYTES = 256 * 1024

Line = tuple[int, str]  # seq, the event as JSON


@dataclass(frozen=True)
class Batch:
    """Events that are sent together. `text` is the frame, encoded once for all recipients."""

    last: int
    text: str


def batch_of(lines: list[Line], head: int) -> Batch:
    last = lines[-1][0]
    events = ",".join(text for _, text in lines)
    return Batch(last, f'{{"type":"events","events":[{events}],"last":{last},"head":{max(head, last)}}}')


def within(lines: list[Line], limit: int) -> list[Line]:
    """Return as many lines as fit into `limit` bytes, but at least one."""
    size = 0
    for count, (_, text) in enumerate(lines):
        size += len(text.encode())
        if size > limit and count:
            return lines[:count]
    return lines


class Follower:
    """A reader that follows one run."""

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self._woken = asyncio.Event()

    def wake(self) -> None:
        self._woken.set()

    async def woken(self) -> None:
        """Return as soon as there may be new events since the last call."""
        await self._woken.wait()
        self._woken.clear()


class Feed:
    """A run's followers, and its latest events without gaps up to `head`."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.followers: set[Follower] = set()
        self.tail: deque[Line] = deque()
        self.characters = 0
        self.head: int | None = None  # events have been read up to this seq; None before the first read
        self.latest = 0  # the run's last known seq
        self.reading = asyncio.Lock()
        self.batches: dict[int, Batch] = {}  # keyed by the cursor before the batch, so followers at the same position share the encoded frame
        self.news = False
        self.spreading: asyncio.Task[None] | None = None

    def begin(self, since: int, last_seq: int) -> None:
        """Choose where reading starts: at the first reader's position, or at the last event if that position is too far back to keep in memory."""
        self.latest = last_seq
        self.head = since if 0 <= last_seq - since <= TAIL_EVENTS else last_seq

    def take(self, lines: list[Line]) -> None:
        """Append the lines that follow `head`."""
        if not lines:
            return
        self.tail.extend(lines)
        self.characters += sum(len(text) for _, text in lines)
        self.head = lines[-1][0]
        self.latest = max(self.latest, self.head)
        while len(self.tail) > TAIL_EVENTS or self.characters > TAIL_CHARACTERS:
            self.characters -= len(self.tail.popleft()[1])
        self.batches.clear()

    def holds(self, seq: int) -> bool:
        """Return whether the events after `seq`, up to `head`, are in memory."""
        return self.head is not None and (seq >= self.head or bool(self.tail) and seq >= self.tail[0][0] - 1)

    def after(self, seq: int, limit: int) -> list[Line]:
        """Return the events after `seq` from memory. Call this only if the feed `holds` them."""
        if not self.tail or seq >= self.tail[-1][0]:
            return []
        first = seq + 1 - self.tail[0][0]
        return list(islice(self.tail, first, first + limit))

    def batch(self, seq: int) -> Batch | None:
        """Return the next frame after `seq` from memory, or None if there are no newer events or they are not in memory."""
        known = self.batches.get(seq)
        if known is None and self.holds(seq) and (lines := self.after(seq, BATCH_EVENTS)):
            if len(self.batches) >= MOST_BATCHES:
                self.batches.clear()
            known = self.batches[seq] = batch_of(within(lines, BATCH_BYTES), self.latest)
        return known

    def wake(self) -> None:
        for follower in self.followers:
            follower.wake()
