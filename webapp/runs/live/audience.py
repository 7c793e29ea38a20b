"""Serves the open pages of one run. For all pages together, new events are read, access rights are checked and frames are encoded only once.

A single task in the audience serves, from memory, all viewers that have reached the head of the trace. A viewer falls behind if its page was opened
late or acknowledges slowly. It then catches up in a separate task at its own pace and rejoins the others.
"""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress

from webapp.runs.live.feed import Batch, Feed
from webapp.runs.live.hub import hub
from webapp.runs.live.rights import Person, allowed

log = logging.getLogger(__name__)

CHECK_SECONDS = 2.0  # the longest that a lost right stays in effect if its loss was not announced (webapp/accounts/lost_access.py)

# The window: the server stops sending to a page that has this much unacknowledged data, so a socket's buffer never holds more than this plus one
# frame. A page acknowledges at least every 8 frames or 65,536 characters (static/js/run/connection.js), so a connection with a latency of half a
# second still gets 40 frames per second.
WINDOW_FRAMES = 32
WINDOW_CHARACTERS = 128 * 1024

NOT_YOURS, FAILED = 4404, 1011  # close codes


Done = Awaitable[None]


class Viewer:
    """The server's view of one page: its position in the trace and the frames that it has not yet acknowledged."""

    def __init__(
        self, person: Person, since: int, checked: float, epoch: int, send: Callable[[str], Awaitable[None]], close: Callable[[int], Awaitable[None]]
    ):
        self.person, self.send, self.close = person, send, close
        self.cursor = since
        self.checked, self.epoch = checked, epoch  # time and `access_epoch` of the last successful check of this person's right
        self.unacknowledged: deque[tuple[int, int]] = deque()  # last seq and character count of each frame
        self.characters = 0
        self.catching_up: asyncio.Task[None] | None = None

    @property
    def has_room(self) -> bool:
        return len(self.unacknowledged) < WINDOW_FRAMES and self.characters < WINDOW_CHARACTERS

    def acknowledge(self, seq: int) -> None:
        while self.unacknowledged and self.unacknowledged[0][0] <= seq:
            self.characters -= self.unacknowledged.popleft()[1]

    async def take(self, batch: Batch) -> None:
        """Send a batch.

        Daphne's `send` never waits. It leaves the frame in the socket's buffer, whose size is bounded by the window. Viewers can therefore be served
        one after another.
        """
        self.cursor = batch.last
        self.unacknowledged.append((batch.last, len(batch.text)))
        self.characters += len(batch.text)
        await self.send(batch.text)


class Audience:
    """All viewers of one run in this process."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.viewers: set[Viewer] = set()
        self.feed: Feed  # set once the audience follows the run
        self._following = asyncio.Event()
        self._courier = asyncio.create_task(self._serve(), name=f"courier of {run}")

    def join(self, viewer: Viewer) -> None:
        self.viewers.add(viewer)
        self._start_catching_up(viewer)

    async def leave(self, viewer: Viewer) -> None:
        """Remove the viewer, and return once nothing more will be sent to it."""
        await asyncio.gather(*self._discard(viewer), return_exceptions=True)

    def _discard(self, viewer: Viewer) -> list[asyncio.Task[None]]:
        """Cancel and return the tasks that no longer serve any viewer, except the calling task."""
        self.viewers.discard(viewer)
        tasks = [viewer.catching_up] if viewer.catching_up else []
        if not self.viewers:
            self._end()
            tasks.append(self._courier)
        tasks = [task for task in tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        return tasks

    def acknowledged(self, viewer: Viewer, seq: int) -> None:
        had_room = viewer.has_room
        viewer.acknowledge(seq)
        if viewer.has_room and not had_room:
            self._start_catching_up(viewer)

    def _end(self) -> None:
        if _audiences().get(self.run) is self:
            del _audiences()[self.run]

    async def _serve(self) -> None:
        try:
            async with hub().follow(self.run) as follower:
                self.feed = follower.feed
                self._following.set()
                while self.viewers:
                    await follower.woken()
                    await self._tell()
        except Exception:
            self._end()
            await self._failed(*self.viewers)
        finally:
            self._end()

    async def _tell(self) -> None:
        """Send new events to every viewer that is neither behind nor silent."""
        more = bool(self.viewers)
        while more:
            more = await hub().refresh(self.feed, min((viewer.cursor for viewer in self.viewers), default=0))
            oldest = time.monotonic() - CHECK_SECONDS  # computed before the check so that viewers that need no check stay trusted
            await self._check(self.viewers)
            epoch = hub().access_epoch
            for viewer in [*self.viewers]:
                if viewer in self.viewers and viewer.catching_up is None:
                    await self._serve_from_memory(viewer, viewer.epoch == epoch and viewer.checked >= oldest)

    async def _serve_from_memory(self, viewer: Viewer, trusted: bool) -> None:
        try:
            while trusted and viewer.has_room and (batch := self.feed.batch(viewer.cursor)):
                await viewer.take(batch)
        except Exception:
            await self._failed(viewer)
        if viewer.has_room and self._is_behind(viewer):
            self._start_catching_up(viewer)

    def _is_behind(self, viewer: Viewer) -> bool:
        return self.feed.head is None or viewer.cursor < self.feed.head

    def _start_catching_up(self, viewer: Viewer) -> None:
        if viewer in self.viewers and viewer.catching_up is None:
            viewer.catching_up = asyncio.create_task(self._catch_up(viewer))

    async def _catch_up(self, viewer: Viewer) -> None:
        """Send batches until the viewer reaches the head, after which the courier takes over.

        No other task runs between the check that nothing is left and `catching_up = None`, so no event is lost in between.
        """
        try:
            await self._following.wait()
            while viewer.has_room and self._is_behind(viewer) and (batch := await hub().batch(self.feed, viewer.cursor)):
                await self._check([viewer])
                if viewer not in self.viewers:
                    return
                await viewer.take(batch)
        except Exception:
            await self._failed(viewer)
        finally:
            viewer.catching_up = None

    async def _check(self, viewers: Iterable[Viewer]) -> None:
        """Check rights again after an access change has been announced, and every `CHECK_SECONDS` for viewers that are being sent events."""
        epoch, now = hub().access_epoch, time.monotonic()
        due = [viewer for viewer in viewers if viewer.epoch != epoch or now - viewer.checked > CHECK_SECONDS and viewer.cursor != self.feed.head]
        if not due:
            return
        may = await allowed(self.run, {viewer.person for viewer in due})
        for viewer in due:
            if viewer.person in may:
                viewer.epoch, viewer.checked = epoch, now
            elif viewer in self.viewers:
                await self._drop(viewer, NOT_YOURS)

    async def _failed(self, *viewers: Viewer) -> None:
        """Close the viewers' sockets. Their pages reconnect at their cursors, so no events are lost."""
        log.exception("sending the events of run %s failed", self.run)
        for viewer in viewers:
            await self._drop(viewer, FAILED)

    async def _drop(self, viewer: Viewer, code: int) -> None:
        self._discard(viewer)
        with suppress(Exception):  # sending raises if the socket is gone, but the other viewers must still be notified
            await viewer.close(code)


_all: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, Audience]] = weakref.WeakKeyDictionary()


def _audiences() -> dict[str, Audience]:
    return _all.setdefault(asyncio.get_running_loop(), {})


def audience(run: str) -> Audience:
    """Return this event loop's audience for the run. The audience ends when its last viewer leaves."""
    if run not in _audiences():
        _audiences()[run] = Audience(run)
    return _audiences()[run]
