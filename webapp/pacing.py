"""Answers go out at the pace at which they are read: Daphne's own `send` never waits, and keeps whatever a reader does not take.

While a connection's buffer is full, `send` of a piece waits until the buffer is empty. A reader that takes nothing for `PATIENCE_SECONDS` is hung up
on: an event stream goes on from its last `id`, and a file is asked for again.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from daphne import http_protocol

PATIENCE_SECONDS = 60.0


class PacedRequest(http_protocol.WebRequest):
    """An answer in pieces, which the transport halts while its buffer (64 KiB of Twisted's, and the kernel's) is full."""

    paced = False

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.flowing = asyncio.Event()
        self.flowing.set()
        super().__init__(*arguments, **named)

    def handle_reply(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.body" and not self.finished and self.channel is not None:
            if message.get("more_body"):
                if not self.paced:
                    self.paced = True
                    self.registerProducer(self, True)
            elif self.paced:
                self._unpace()  # before `finish`, which takes a producer for a defect
        super().handle_reply(message)

    def _unpace(self) -> None:
        self.paced = False
        self.flowing.set()
        if self.channel is not None:
            self.unregisterProducer()

    def pauseProducing(self) -> None:
        self.flowing.clear()

    def resumeProducing(self) -> None:
        self.flowing.set()

    def stopProducing(self) -> None:
        self.flowing.set()

    def connectionLost(self, reason: Any) -> None:
        self.flowing.set()
        super().connectionLost(reason)

    async def has_room(self) -> None:
        """Returns when more may be written: also where nobody is there any more, or was hung up on."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self.flowing.wait()
        except TimeoutError:
            self.hang_up()

    def hang_up(self) -> None:
        """At once, with what is still in the buffer: whoever does not read would never let it go."""
        channel = self.channel
        self.flowing.set()
        if channel is not None:
            channel.transport.abortConnection()


def pace(server: Any) -> None:
    """From now on `send` of this class of server waits for room."""
    reply = server.handle_reply

    async def paced_reply(self: Any, protocol: Any, message: dict[str, Any]) -> None:
        await reply(self, protocol, message)
        if message["type"] == "http.response.body" and message.get("more_body") and isinstance(protocol, PacedRequest):
            await protocol.has_room()

    server.handle_reply = paced_reply


def pace_daphne() -> None:
    """Where Daphne serves; its module is not imported for this, as that would install a reactor."""
    if (module := sys.modules.get("daphne.server")) is not None:
        pace(module.Server)
