"""The websocket of an open page. It reports the number of unread notifications, changes to the review of the page's run, and the other viewers.

Client: `{"type": "watch", "run": ID, "place": "candidate 4"}`, then `{"type": "place", "place": …}` as the reader moves. `place` is "" while the page
is hidden. Server: `{"type": "unread", "count"}`, `{"type": "review", "run", "seq"}`, `{"type": "presence", "people": [{"name", "place"}]}`. Every
message is either a hint or a complete state, so a lost message loses no data. The page requests threads that changed after its own cursor.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import uuid
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from channels.generic.websocket import AsyncWebsocketConsumer

from webapp.review.desk import person_key, run_key
from webapp.runs.live.hub import hub
from webapp.runs.trace.reading import CHANNEL
from webapp.sql import statements

log = logging.getLogger(__name__)

BAD_MESSAGE, SIGNED_OUT, NOT_YOURS = 4400, 4401, 4404
LONGEST_MESSAGE = 400
PLACE = re.compile(r"^(the run|candidate \d{1,9}|the timeline of (candidate \d{1,9}|the reference))?$")
BEAT_SECONDS = 20.0
PRESENT_FOR = "45 seconds"  # a page that has been silent for this long is considered closed

SESSION = """(%(session)s::text IS NULL OR EXISTS (SELECT FROM django_session s WHERE s.session_key = %(session)s AND s.expire_date > now()))"""
SQL = {name: text.replace("{session}", SESSION).replace("{present_for}", PRESENT_FOR) for name, text in statements(__file__).items()}
LEAVE = "WITH gone AS (DELETE FROM review_presence WHERE id = %(id)s RETURNING 1) SELECT pg_notify(%(channel)s, %(key)s) FROM gone"


class BadMessage(ValueError):
    """Raised if the page sends a message that the protocol does not define."""


class ReviewConsumer(AsyncWebsocketConsumer):
    async def connect(self) -> None:
        self.tasks: list[asyncio.Task[None]] = []
        self.run: str | None = None
        self.id = uuid.uuid4()
        user = self.scope.get("user")
        await self.accept()  # accept first, because a browser receives the close code only if the connection was opened
        if user is None or not user.is_authenticated:
            await self.close(SIGNED_OUT)
            return
        self._start(self._tell_unread())

    async def disconnect(self, code: int) -> None:
        for task in self.tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        if self.run is not None:
            await hub().query(LEAVE, self._arguments())

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        try:
            await self._obey(text_data)
        except BadMessage:
            await self.close(BAD_MESSAGE)

    async def _obey(self, text: str | None) -> None:
        try:
            message = json.loads(text if text is not None and len(text) <= LONGEST_MESSAGE else "")
        except ValueError:
            raise BadMessage from None
        match message:
            case {"type": "watch", "run": str(run), "place": str(place)} if self.run is None and PLACE.match(place) and self.tasks:
                with suppress(ValueError):
                    self.run = str(uuid.UUID(run))
                if self.run is None:
                    raise BadMessage
                if await hub().query(SQL["run"], self._arguments()) is None:
                    self.run = None  # the run belongs to another team (it may be published), so nothing is sent about it; everything else continues
                    return
                await hub().query(SQL["move"], self._arguments(place=place))
                self._start(self._tell_run(self.run))
                self._start(self._beat())
            case {"type": "place", "place": str(place)} if PLACE.match(place):
                if self.run is not None:
                    await hub().query(SQL["move"], self._arguments(place=place))
            case _:
                raise BadMessage

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.create_task(self._guarded(work)))

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except asyncio.CancelledError:
            raise
        except Exception:
            log.exception("telling a page about reviews failed")
            await self.close(1011)  # the page reconnects and receives the full state

    async def _tell_unread(self) -> None:
        said = None
        async with hub().follow(person_key(self.scope["user"].pk)) as follower:
            while True:
                await follower.woken()
                row = await hub().query(SQL["unread"], self._arguments())
                if row is None:
                    await self.close(SIGNED_OUT)
                    return
                if row[0] != said:
                    said = row[0]
                    await self._say(type="unread", count=said)

    async def _tell_run(self, run: str) -> None:
        head = people = None
        async with hub().follow(run_key(run)) as follower:
            while True:
                await follower.woken()
                row = await hub().query(SQL["run"], self._arguments())
                if row is None:
                    await self.close(NOT_YOURS)
                    return
                if row[0] != head:
                    head = row[0]
                    await self._say(type="review", run=self.run, seq=head)
                if row[1] != people:
                    people = row[1]
                    await self._say(type="presence", people=people)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            await hub().query(SQL["beat"], self._arguments())

    async def _say(self, **message: Any) -> None:
        await self.send(text_data=json.dumps(message, separators=(",", ":")))

    def _arguments(self, **more: Any) -> dict[str, Any]:
        session = self.scope.get("session")
        own = {"id": self.id, "run": self.run, "user": self.scope["user"].pk, "session": getattr(session, "session_key", None)}
        return own | {"channel": CHANNEL, "key": f"{run_key(self.run or '')}:0"} | more
