"""The live protocol. Client: `{"type": "open", "since": N}`, then `{"type": "ack", "seq": M}` for what it has taken, at the latest after 8 frames or
65,536 characters."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

from channels.consumer import get_handler_name
from channels.exceptions import StopConsumer
from channels.generic.websocket import AsyncWebsocketConsumer

from webapp.runs.live.audience import NOT_YOURS, Audience, Viewer, audience
from webapp.runs.live.hub import hub
from webapp.runs.live.rights import Person, allowed

Message = dict[str, Any]  # as ASGI has them
LONGEST_MESSAGE = 1000  # characters; no client has more to say
LARGEST = 2**63 - 1  # a seq, as Postgres keeps it

# Close codes; a browser sees them.
BAD_MESSAGE, SIGNED_OUT = 4400, 4401


class BadMessage(ValueError):
    """The client said something that the protocol does not have."""


class RunConsumer(AsyncWebsocketConsumer):
    """Sends the events of one run from the client's cursor on, as far ahead of its acknowledgements as the window (audience.py) allows.

    Nothing else is queued for a client: a slow one falls behind, and one that never acknowledges gets nothing more.
    """

    person: Person | None = None  # who may see the run
    viewer: Viewer | None = None
    audience: Audience | None = None

    async def __call__(self, scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]) -> None:
        """Message by message. Channels' own starts a task for each, as there might be a layer to listen to as well, and has a thread look whether one
        of Django's connections is too old to be kept; there is no layer, and the hub has connections of its own."""
        self.scope, self.base_send = scope, send
        try:
            while True:
                message = await receive()
                await getattr(self, get_handler_name(message))(message)
        except StopConsumer:
            pass
        finally:
            await self._leave()

    async def connect(self) -> None:
        self.run = str(self.scope["url_route"]["kwargs"]["run_id"])
        self.checked, self.access_epoch = time.monotonic(), hub().access_epoch
        user, session = self.scope.get("user"), self.scope.get("session")
        share = (session or {}).get("shares", {}).get(self.run)
        if user is None or not (user.is_authenticated or share):
            await self._refuse(SIGNED_OUT)
            return
        person = Person(user.pk, share, getattr(session, "session_key", None))
        if await allowed(self.run, [person]):
            self.person = person
            await self.accept()
        else:
            await self._refuse(NOT_YOURS)

    async def _refuse(self, code: int) -> None:
        """Accepted first: a browser learns the code of a connection that was open, and nothing of one that was not."""
        await self.accept()
        await self.close(code)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        if self.person is None:
            return  # refused: the close is on its way
        try:
            await self._obey(text_data)
        except BadMessage:
            await self._leave()
            await self.close(BAD_MESSAGE)

    async def _obey(self, text: str | None) -> None:
        if text is None or len(text) > LONGEST_MESSAGE:
            raise BadMessage
        try:
            message = json.loads(text)
        except ValueError:
            raise BadMessage from None
        match message:
            case {"type": "open", "since": int(since)} if self.viewer is None and 0 <= since <= LARGEST:  # once a socket: each has one window
                self.viewer = Viewer(self.person, since, self.checked, self.access_epoch, self._send_text, self.close)
                self.audience = audience(self.run)
                self.audience.join(self.viewer)
            case {"type": "ack", "seq": int(seq)} if self.audience is not None and self.viewer is not None:
                self.audience.acknowledged(self.viewer, seq)
            case _:
                raise BadMessage

    async def _send_text(self, text: str) -> None:
        await self.base_send({"type": "websocket.send", "text": text})

    async def _leave(self) -> None:
        if self.audience is not None and self.viewer is not None:
            await self.audience.leave(self.viewer)
        self.audience = self.viewer = None
