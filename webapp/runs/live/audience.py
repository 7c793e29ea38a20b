"""The open pages of one run. News are read once for all of them, rights are asked for once, and a frame is encoded once.

One task of the audience serves everybody who is at the head of the trace, from memory. Who is behind, because the page was opened late or
acknowledged late, catches up in a task of its own, at its own pace, and is then served with the others again.
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

CHECK_SECONDS = 2.0  # how long a right that went without a word (webapp/accounts/lost_access.py) may still be used

# What a page may leave unacknowledged before it gets nothing more: all that is ever in a socket's buffer is this, and one frame. A page acknowledges
# every 8 frames or 65,536 characters at the latest (static/js/run/connection.js), so that a line of half a second still has 40 frames a second.
WINDOW_FRAMES = 32
WINDOW_CHARACTERS = 128 * 1024

NOT_YOURS, FAILED = 4404, 1011  # close codes


Done = Awaitable[None]


class Viewer:
    """One page's end: where it is in the trace, and which frames it has not acknowledged."""

    def __init__(
        self, person: Person, since: int, checked: float, epoch: int, send: Callable[[str], Awaitable[None]], close: Callable[[int], Awaitable[None]]
    ):
        self.person, self.send, self.close = person, send, close
        self.cursor = since
        self.checked, self.epoch = checked, epoch  # when, and at which `access_epoch`, this person was known to have the right
        self.unacknowledged: deque[tuple[int, int]] = deque()  # last seq and characters of each frame
        self.characters = 0
        self.catching_up: asyncio.Task[None] | None = None

    @property
    def has_room(self) -> bool:
        return len(self.unacknowledged) < WINDOW_FRAMES and self.characters < WINDOW_CHARACTERS

    def acknowledge(self, seq: int) -> None:
        while self.unacknowledged and self.unacknowledged[0][0] <= seq:
            self.characters -= self.unacknowledged.popleft()[1]

    async def take(self, batch: Batch) -> None:
        """Daphne's `send` never waits: it leaves the frame in the socket's buffer, which the window bounds. So viewers are served in turn."""
        self.cursor = batch.last
        self.unacknowledged.append((batch.last, len(batch.text)))
        self.characters += len(batch.text)
        await self.send(batch.text)


class Audience:
    """Everybody who is viewing one run in this process."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.viewers: set[Viewer] = set()
        self.feed: Feed  # from when it follows the run
        self._following = asyncio.Event()
        self._courier = asyncio.create_task(self._serve(), name=f"courier of {run}")

    def join(self, viewer: Viewer) -> None:
        self.viewers.add(viewer)
        self._start_catching_up(viewer)

    async def leave(self, viewer: Viewer) -> None:
        """Returns when nothing more is sent to this viewer."""
        await asyncio.gather(*self._discard(viewer), return_exceptions=True)

    def _discard(self, viewer: Viewer) -> list[asyncio.Task[None]]:
        """Cancels, and returns, the tasks that now have nobody to work for, besides the one that says so."""
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
        """What is new, to everybody who is neither behind nor silent."""
        more = bool(self.viewers)
        while more:
            more = await hub().refresh(self.feed, min((viewer.cursor for viewer in self.viewers), default=0))
            oldest = time.monotonic() - CHECK_SECONDS  # before the question: who need not be asked is trusted
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
        """Batch by batch up to the head: what comes after it, the courier brings. Between finding that nothing is left and `catching_up = None`
        nobody else runs, so nothing falls between."""
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
        """Asked again where somebody may have lost a right, and every `CHECK_SECONDS` of those to whom events are sent."""
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
        """A page whose socket is closed opens it again at its cursor, and loses nothing."""
        log.exception("sending the events of run %s failed", self.run)
        for viewer in viewers:
            await self._drop(viewer, FAILED)

    async def _drop(self, viewer: Viewer, code: int) -> None:
        self._discard(viewer)
        with suppress(Exception):  # of a socket that is gone; the others are still to be told
            await viewer.close(code)


_all: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, Audience]] = weakref.WeakKeyDictionary()


def _audiences() -> dict[str, Audience]:
    return _all.setdefault(asyncio.get_running_loop(), {})


def audience(run: str) -> Audience:
    """The audience of this process's event loop for the run; it ends when its last viewer leaves."""
    if run not in _audiences():
        _audiences()[run] = Audience(run)
    return _audiences()[run]
