"""One listener per process wakes a run's followers and reads each new event once for all of them.

A database notification is only a hint. If one is lost, for example while the connection is down, the events are found by the wake-up after each
reconnect or by slow polling.
"""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import psycopg
from psycopg_pool import AsyncConnectionPool

from webapp.accounts import lost_access
from webapp.database import connection_parameters, listening
from webapp.runs.live.feed import BATCH_BYTES, BATCH_EVENTS, Batch, Feed, Follower, Line, batch_of, within
from webapp.runs.trace.reading import CHANNEL, SELECT_WITHIN

log = logging.getLogger(__name__)

SAFETY_POLL_SECONDS = 15.0
RECONNECT_SECONDS = 0.5
RECONNECT_GIVE_UP_SECONDS = 3.0  # after this time the pool gives up, and the next reader reconnects immediately instead of waiting for a retry
READERS = 4

# The time between two wake-ups of a run's followers. Streamed text arrives as small events, and each wake-up sends a frame to every follower, so all
# events that arrive within one step are sent together. The step grows if a run has so many followers that sending frames would saturate the
# processor. Streaming then takes at most half of the event loop's time, because the same process also serves pages.
STEP_SECONDS = 0.025
STEP_TIMES = 2.0  # length of a step as a multiple of the processor time that the loop used in the previous step
LONGEST_STEP_SECONDS = 0.25

LAST_SEQ = "SELECT last_seq FROM runs_run WHERE id = %(run)s"


class HubClosed(RuntimeError):
    """Raised if the process is shutting down and serves no more requests."""


class Hub:
    def __init__(self) -> None:
        self._closed = False
        self._feeds: dict[str, Feed] = {}
        self._pool: AsyncConnectionPool | None = None
        self._listener: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self.access_epoch = 0  # incremented when a person may have lost a right, so that senders check again

    async def start(self) -> None:
        async with self._starting:
            if self._closed:  # otherwise a task that is still running would open a pool that is never closed
                raise HubClosed
            if self._listener is None:
                parameters = connection_parameters() | {"autocommit": True}
                patience: dict[str, Any] = {"check": AsyncConnectionPool.check_connection, "reconnect_timeout": RECONNECT_GIVE_UP_SECONDS}
                self._pool = AsyncConnectionPool(kwargs=parameters, min_size=0, max_size=READERS, open=False, **patience)
                await self._pool.open()
                self._listener = asyncio.create_task(self._listen(), name="hub listener")

    async def close(self) -> None:
        self._closed = True
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
        """Yield a follower. It is woken once at the start, and then whenever the run may have new events."""
        await self.start()
        if run not in self._feeds:
            self._feeds[run] = Feed(run)
        feed = self._feeds[run]
        follower = Follower(feed)
        feed.followers.add(follower)
        follower.wake()
        try:
            yield follower
        finally:
            feed.followers.discard(follower)
            if not feed.followers:
                self._feeds.pop(run, None)

    async def refresh(self, feed: Feed, since: int) -> bool:
        """Read new events once for all followers. Return True if there may be more.

        `since` is the reader's position, which matters only for the first reader.
        """
        async with feed.reading:
            return await self._read_on(feed, since)

    async def read(self, feed: Feed, since: int, limit: int, most: int = BATCH_BYTES) -> list[Line]:
        """Return the events after `since` from the database, up to `most` bytes.

        Followers at the head share one query, and a follower further behind runs its own.
        """
        if feed.head is None or since >= feed.head:
            async with feed.reading:
                if feed.head is None or since >= feed.head:  # another follower may have read them in the meantime
                    await self._read_on(feed, since)
        return feed.after(since, limit) if feed.holds(since) else await self._select(feed.run, since, limit, most)

    async def batch(self, feed: Feed, since: int) -> Batch | None:
        """Return the next events after `since` in one frame, or None if there are none."""
        lines = await self.read(feed, since, BATCH_EVENTS)
        return feed.batch(since) or (batch_of(within(lines, BATCH_BYTES), feed.latest) if lines else None)

    async def query(self, statement: str, arguments: dict[str, Any]) -> tuple[Any, ...] | None:
        """Run any statement on one of the readers' connections and return a single row."""
        rows = await self.rows(statement, arguments)
        return rows[0] if rows else None

    async def rows(self, statement: str, arguments: dict[str, Any] | list[Any]) -> list[tuple[Any, ...]]:
        """Run a statement and return all rows."""
        await self.start()
        assert self._pool is not None
        async with self._pool.connection() as connection:
            return await (await connection.execute(statement, arguments)).fetchall()

    async def _read_on(self, feed: Feed, since: int) -> bool:
        if feed.head is None:
            row = await self.query(LAST_SEQ, {"run": feed.run})
            feed.begin(since, row[0] if row else 0)
        lines = await self._select(feed.run, feed.head, BATCH_EVENTS, BATCH_BYTES)
        feed.take(lines)
        # The limit counts characters of up to four bytes each, and an event is much smaller than a batch. A batch below an eighth of the limit was
        # therefore not truncated.
        return len(lines) == BATCH_EVENTS or sum(len(text) for _, text in lines) > BATCH_BYTES // 8

    async def _select(self, run: str, since: int | None, limit: int, most: int) -> list[Line]:
        return await self.rows(SELECT_WITHIN, {"run": run, "since": since, "limit": limit, "most": most})

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
        """Wake the followers immediately and, while events keep arriving, once per step, so each wake-up delivers many events."""
        while feed.news:
            feed.news = False
            begun, used = time.monotonic(), time.thread_time()
            feed.wake()
            await asyncio.sleep(STEP_SECONDS)
            longer = min(STEP_TIMES * (time.thread_time() - used), LONGEST_STEP_SECONDS) - (time.monotonic() - begun)
            if longer > 0:
                await asyncio.sleep(longer)

    def _wake_all(self) -> None:
        """Wake all followers after an access change, after a reconnect and at long intervals, because a notification of either kind may have been
        missed."""
        self.access_epoch += 1
        for feed in self._feeds.values():
            feed.wake()


_hubs: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Hub] = weakref.WeakKeyDictionary()


def hub() -> Hub:
    """Return the hub of this process's event loop."""
    loop = asyncio.get_running_loop()
    if loop not in _hubs:
        _hubs[loop] = Hub()
    return _hubs[loop]
