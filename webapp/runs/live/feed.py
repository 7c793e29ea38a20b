"""The latest events of one run, in memory: read once, and made into frames once, however many follow."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from itertools import islice

TAIL_EVENTS = 1000  # of a followed run, kept for its followers
TAIL_CHARACTERS = 2_000_000
MOST_BATCHES = 8  # of a run, kept for the next follower at the same place
BATCH_EVENTS = 500
BATCH_BYTES = 256 * 1024

Line = tuple[int, str]  # seq, the event as JSON


@dataclass(frozen=True)
class Batch:
    """Events that go out together: `text` is the frame, encoded once however many get it."""

    last: int
    text: str


def batch_of(lines: list[Line], head: int) -> Batch:
    last = lines[-1][0]
    events = ",".join(text for _, text in lines)
    return Batch(last, f'{{"type":"events","events":[{events}],"last":{last},"head":{max(head, last)}}}')


def within(lines: list[Line], limit: int) -> list[Line]:
    """As many as fit into `limit` bytes, at least one."""
    size = 0
    for count, (_, text) in enumerate(lines):
        size += len(text.encode())
        if size > limit and count:
            return lines[:count]
    return lines


class Follower:
    """Somebody who follows one run."""

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self._woken = asyncio.Event()

    def wake(self) -> None:
        self._woken.set()

    async def woken(self) -> None:
        """Returns when there may be news since the last call."""
        await self._woken.wait()
        self._woken.clear()


class Feed:
    """A run's followers and its last events, contiguous up to `head`."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.followers: set[Follower] = set()
        self.tail: deque[Line] = deque()
        self.characters = 0
        self.head: int | None = None  # up to where it has been read; None until somebody reads
        self.latest = 0  # the run's last seq, as far as known
        self.reading = asyncio.Lock()
        self.batches: dict[int, Batch] = {}  # by the cursor that they follow: made once for all who are at the same place
        self.news = False
        self.spreading: asyncio.Task[None] | None = None

    def begin(self, since: int, last_seq: int) -> None:
        """From here on it is read: from where the first reader is, unless that is further back than what is kept."""
        self.latest = last_seq
        self.head = since if 0 <= last_seq - since <= TAIL_EVENTS else last_seq

    def take(self, lines: list[Line]) -> None:
        """What follows `head`."""
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
        """Whether what follows `seq` is in memory, as far as it has been read."""
        return self.head is not None and (seq >= self.head or bool(self.tail) and seq >= self.tail[0][0] - 1)

    def after(self, seq: int, limit: int) -> list[Line]:
        """From memory, where it `holds` them."""
        if not self.tail or seq >= self.tail[-1][0]:
            return []
        first = seq + 1 - self.tail[0][0]
        return list(islice(self.tail, first, first + limit))

    def batch(self, seq: int) -> Batch | None:
        """The next frame after `seq`, from memory; None where there is nothing, or nothing in memory."""
        known = self.batches.get(seq)
        if known is None and self.holds(seq) and (lines := self.after(seq, BATCH_EVENTS)):
            if len(self.batches) >= MOST_BATCHES:
                self.batches.clear()
            known = self.batches[seq] = batch_of(within(lines, BATCH_BYTES), self.latest)
        return known

    def wake(self) -> None:
        for follower in self.followers:
            follower.wake()
