"""The live protocol.

The client sends `{"type": "open", "since": N}`. It then acknowledges the events it has received with `{"type": "ack", "seq": M}`, at least every 8
frames or 65,536 characters.
"""

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

Message = dict[str, Any]  # as defined by ASGI
LONGEST_MESSAGE = 1000  # characters; no valid client message is longer
LARGEST = 2**63 - 1  # the largest seq that Postgres can store

# Close codes, which the page's script can read.
BAD_MESSAGE, SIGNED_OUT = 4400, 4401


class BadMessage(ValueError):
    """Raised if the client sends a message that the protocol does not define."""


class RunConsumer(AsyncWebsocketConsumer):
    """Sends the events of one run, starting at the client's cursor. The window (audience.py) limits how far the server gets ahead of the client's
    acknowledgements.

    Nothing beyond the window is queued. A slow client falls behind, and a client that never acknowledges eventually receives nothing more.
    """

    person: Person | None = None  # the person whose right to see the run is checked
    viewer: Viewer | None = None
    audience: Audience | None = None

    async def __call__(self, scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]) -> None:
        """Process the connection message by message.

        Channels' own implementation starts one task per message source, because it may also have to listen to a channel layer. It also uses a thread
        to check whether a Django connection has become too old. This app has no channel layer, and the hub has its own connections.
        """
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
        """Accept the connection and then close it, because a browser sees the close code only of an open connection."""
        await self.accept()
        await self.close(code)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        if self.person is None:
            return  # the connection was refused, and the close message is on its way
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
            case {"type": "open", "since": int(since)} if self.person and self.viewer is None and 0 <= since <= LARGEST:  # once per socket
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
