"""Adds back pressure to responses. Daphne's own `send` never waits, so it would buffer everything that a slow reader has not yet received.

While a connection's buffer is full, `send` waits until it is empty. A reader that receives nothing for `PATIENCE_SECONDS` is disconnected. It can
resume an event stream from its last `id`, or request a file again.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from daphne import http_protocol

PATIENCE_SECONDS = 60.0


class PacedRequest(http_protocol.WebRequest):
    """A response sent in pieces. The transport pauses it while its buffer (64 KiB in Twisted, plus the kernel's) is full."""

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
                self._unpace()  # must come before `finish`, which treats a registered producer as an error
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
        """Returns when more may be written, or when the reader has left or been disconnected."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self.flowing.wait()
        except TimeoutError:
            self.hang_up()

    def hang_up(self) -> None:
        """Disconnects immediately and discards the buffer, because a reader that has stopped reading would never empty it."""
        channel = self.channel
        self.flowing.set()
        if channel is not None:
            channel.transport.abortConnection()


def pace(server: Any) -> None:
    """Patches this server class's `send` so that it waits for room in the buffer."""
    reply = server.handle_reply

    async def paced_reply(self: Any, protocol: Any, message: dict[str, Any]) -> None:
        await reply(self, protocol, message)
        if message["type"] == "http.response.body" and message.get("more_body") and isinstance(protocol, PacedRequest):
            await protocol.has_room()

    server.handle_reply = paced_reply


def pace_daphne() -> None:
    """Adds pacing to Daphne if that is the running server. Daphne's module must not be imported here, because the import would install a reactor."""
    if (module := sys.modules.get("daphne.server")) is not None:
        pace(module.Server)
