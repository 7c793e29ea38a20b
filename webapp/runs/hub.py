"""One listener a process: wakes whoever follows a run, and reads each new event once for all of them.

A notification is only a hint. What is missed while the connection is away, or lost otherwise, is found by the wake-up that follows each
reconnect and by a slow poll.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import islice

import psycopg
from psycopg_pool import AsyncConnectionPool

from webapp.accounts import lost_access
from webapp.database import connection_parameters, listening
from webapp.runs.append import CHANNEL
from webapp.runs.trace import SELECT_AFTER

log = logging.getLogger(__name__)

SAFETY_POLL_SECONDS = 15.0
RECONNECT_SECONDS = 0.5
RECONNECT_GIVE_UP_SECONDS = 3.0  # then the next reader begins anew, instead of waiting out intervals that double
TAIL_EVENTS = 1000  # of a followed run, kept in memory for its followers
TAIL_CHARACTERS = 2_000_000
READERS = 4
MOST_BATCHES = 8  # of a run, kept for the next follower at the same place
BATCH_EVENTS = 500
BATCH_BYTES = 256 * 1024

# Between two wake-ups of a run's followers: text streams in small events, and each wake-up is a frame for everybody. With 100 of them shorter steps
# fill a processor with frames, and events arrive later (bench/results/stream.json: p95 57 ms; 66 ms with steps of 20 ms).
SPREAD_SECONDS = 0.05

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

    def __init__(self) -> None:
        self._woken = asyncio.Event()

    def wake(self) -> None:
        self._woken.set()

    async def woken(self) -> None:
        """Returns when there may be news since the last call."""
        await self._woken.wait()
        self._woken.clear()


class Feed:
    """A run's followers and the latest of its events, contiguous up to `head`."""

    def __init__(self) -> None:
        self.followers: set[Follower] = set()
        self.tail: deque[Line] = deque()
        self.characters = 0
        self.head = 0
        self.reading = asyncio.Lock()
        self.batches: dict[int, Batch] = {}  # by the cursor that they follow: made once for all who are at the same place
        self.news = False
        self.spreading: asyncio.Task | None = None

    def take(self, lines: list[Line]) -> None:
        for line in lines:
            self.tail.append(line)
            self.characters += len(line[1])
            self.head = line[0]
        while len(self.tail) > TAIL_EVENTS or self.characters > TAIL_CHARACTERS:
            self.characters -= len(self.tail.popleft()[1])
        self.batches.clear()

    def after(self, seq: int, limit: int) -> list[Line] | None:
        """From memory, or None where `seq` lies before what is kept."""
        if not self.tail or seq < self.tail[0][0] - 1:
            return None
        first = seq + 1 - self.tail[0][0]
        return list(islice(self.tail, first, first + limit))

    def wake(self) -> None:
        for follower in self.followers:
            follower.wake()


class Hub:
    def __init__(self) -> None:
        self._feeds: dict[str, Feed] = {}
        self._pool: AsyncConnectionPool | None = None
        self._listener: asyncio.Task | None = None
        self._starting = asyncio.Lock()
        self.access_epoch = 0  # rises when somebody may have lost a right: who shows something asks again

    async def start(self) -> None:
        async with self._starting:
            if self._listener is None:
                parameters = connection_parameters() | {"autocommit": True}
                patience: dict = {"check": AsyncConnectionPool.check_connection, "reconnect_timeout": RECONNECT_GIVE_UP_SECONDS}
                self._pool = AsyncConnectionPool(kwargs=parameters, min_size=0, max_size=READERS, open=False, **patience)
                await self._pool.open()
                self._listener = asyncio.create_task(self._listen(), name="hub listener")

    async def close(self) -> None:
        if self._listener is not None:
            self._listener.cancel()
            with suppress(asyncio.CancelledError):
                await self._listener
            self._listener = None
        if self._pool is not None:
            await self._pool.close()
            self._pool = None

    @asynccontextmanager
    async def follow(self, run: str) -> AsyncIterator[Follower]:
        """Woken once at the start, and then whenever the run may have news."""
        await self.start()
        feed = self._feeds.setdefault(run, Feed())
        follower = Follower()
        feed.followers.add(follower)
        follower.wake()
        try:
            yield follower
        finally:
            feed.followers.discard(follower)
            if not feed.followers:
                self._feeds.pop(run, None)

    async def read(self, run: str, since: int, limit: int) -> list[Line]:
        """Events after `since`. Followers at the head share one query; who is further behind asks for itself."""
        feed = self._feeds.get(run)
        if feed is None:
            return await self._select(run, since, limit)
        kept = feed.after(since, limit)
        if kept:
            return kept
        if feed.tail and since < feed.head:
            return await self._select(run, since, limit)
        async with feed.reading:
            kept = feed.after(since, limit)  # another follower may have read it meanwhile
            if kept:
                return kept
            lines = await self._select(run, since, limit)
            if not feed.tail or since == feed.head:
                feed.take(lines)
            return lines

    async def batch(self, run: str, since: int, head: int) -> Batch | None:
        """The next events after `since`, in one frame; None where there are none. `head` is the run's last seq as far as the caller knows."""
        feed = self._feeds.get(run)
        known = feed.batches.get(since) if feed else None
        if known is None and (lines := await self.read(run, since, BATCH_EVENTS)):
            known = batch_of(within(lines, BATCH_BYTES), max(head, feed.head if feed else 0))
            if feed and feed.after(since, 1):
                if len(feed.batches) >= MOST_BATCHES:
                    feed.batches.clear()
                feed.batches[since] = known
        return known

    async def query(self, statement: str, arguments: dict) -> tuple | None:
        """One row of an arbitrary statement, on one of the readers' connections."""
        await self.start()
        assert self._pool is not None
        async with self._pool.connection() as connection:
            return await (await connection.execute(statement, arguments)).fetchone()

    async def _select(self, run: str, since: int, limit: int) -> list[Line]:
        await self.start()
        assert self._pool is not None
        async with self._pool.connection() as connection:
            return await (await connection.execute(SELECT_AFTER, [run, since, limit])).fetchall()

    async def _listen(self) -> None:
        while True:
            try:
                connection = await listening(CHANNEL)
                async with connection:
                    self._wake_all()
                    while True:
                        async for notification in connection.notifies(timeout=SAFETY_POLL_SECONDS):
                            self._heard(notification.payload)
                        self._wake_all()
            except (psycopg.Error, OSError) as error:
                log.warning("the listener lost the database (%s); connecting again", type(error).__name__)
                await asyncio.sleep(RECONNECT_SECONDS)

    def _heard(self, payload: str) -> None:
        if payload == lost_access.PAYLOAD:
            self._wake_all()
            return
        feed = self._feeds.get(payload.partition(":")[0])
        if feed is None:
            return
        feed.news = True
        if feed.spreading is None or feed.spreading.done():
            feed.spreading = asyncio.create_task(self._spread(feed))

    async def _spread(self, feed: Feed) -> None:
        """Wakes the followers at once, and while news keep coming, in steps: then each wake-up brings many events."""
        while feed.news:
            feed.news = False
            feed.wake()
            await asyncio.sleep(SPREAD_SECONDS)

    def _wake_all(self) -> None:
        """After a change of access, a reconnect, or a while: what was missed may be one of either kind."""
        self.access_epoch += 1
        for feed in self._feeds.values():
            feed.wake()


_hubs: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Hub] = weakref.WeakKeyDictionary()


def hub() -> Hub:
    """The hub of this process's event loop."""
    loop = asyncio.get_running_loop()
    if loop not in _hubs:
        _hubs[loop] = Hub()
    return _hubs[loop]
