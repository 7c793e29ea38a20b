"""Limits request bodies before they are spooled, because Daphne would write the whole body to a file before checking it.

Anybody may send up to one megabyte. Beyond that, reading pauses until the request's session or token has been looked up. A sender without a valid
session or token is refused, regardless of the announced length. Nobody may send more than `MOST`.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from daphne import http_protocol
from django.conf import settings
from django.http.cookie import parse_cookie

from webapp.accounts import tokens
from webapp.accounts.signed_in import user_of_session
from webapp.database import in_thread
from webapp.pacing import PacedRequest

ANYBODYS = 1 << 20
MOST = 48 << 20  # enough for a zip file of tasks
TOO_LARGE = "The request is larger than {} MiB."
STRANGERS = "Sign in, or send a token, for a request of more than 1 MiB."
MEMBERS = "A source has at most 512 KiB, and a zip of tasks {} MiB."


def known(authorization: str, cookies: str) -> bool:
    """Returns whether the credentials belong to a known sender."""
    if authorization:
        return tokens.authenticate(authorization) is not None
    key = parse_cookie(cookies).get(settings.SESSION_COOKIE_NAME)
    if not key:
        return False
    return user_of_session(key) is not None


class BoundedRequest(PacedRequest):
    """A request with a bounded body. Twisted passes the announced length and then each piece on the event loop's thread."""

    came = 0
    room = ANYBODYS
    asked = False
    refused = False

    def gotLength(self, length: int | None) -> None:
        super().gotLength(length)
        if length is not None:
            self._expect(length)

    def handleContentChunk(self, data: bytes) -> None:
        if self.refused:
            return
        self.came += len(data)
        self._expect(self.came)
        if not self.refused:
            super().handleContentChunk(data)

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:
        if not self.refused:
            super().requestReceived(command, path, version)

    def _expect(self, length: int) -> None:
        if length <= self.room:
            return
        if length > MOST:
            self._refuse(MOST, MEMBERS.format(MOST >> 20))
        elif not self.asked:
            self.asked = True
            self.channel.transport.pauseProducing()
            asyncio.ensure_future(self._ask())
        elif self.came > self.room + ANYBODYS:  # ANYBODYS allows for data that was in flight when reading paused
            self._refuse(ANYBODYS, STRANGERS)

    async def _ask(self) -> None:
        def header(name: bytes) -> str:
            return b"; ".join(self.requestHeaders.getRawHeaders(name) or []).decode("latin-1")

        try:
            somebody = await in_thread(known)(header(b"authorization"), header(b"cookie"))
        except Exception:  # without a database, no sender can be verified
            somebody = False
        if self.channel is None or self.refused:
            return
        if somebody:
            self.room = MOST
            self.channel.transport.resumeProducing()
        else:
            self._refuse(ANYBODYS, STRANGERS)

    def _refuse(self, most: int, hint: str) -> None:
        """Responds immediately and closes the connection. Data that arrives afterwards is discarded."""
        self.refused = True
        problem: dict[str, Any] = {"title": "Content Too Large", "status": 413, "detail": TOO_LARGE.format(most >> 20), "hint": hint}
        body = json.dumps(problem).encode()
        head = f"HTTP/1.1 413 Content Too Large\r\nContent-Type: application/problem+json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        transport = self.channel.transport
        transport.write(head.encode() + body)
        transport.loseConnection()


def bound() -> None:
    """Makes Daphne use this request class from now on."""
    http_protocol.WebRequest = BoundedRequest
