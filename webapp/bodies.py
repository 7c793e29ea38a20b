"""Bodies of requests are bounded before they are spooled: Daphne would write whatever comes into a file first, and ask afterwards.

Up to a megabyte comes from anybody. For more, reading stands still until the session or the token that the request carries has been looked up; who
has none that holds is refused, however much was announced. Nobody sends more than `MOST`.
"""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

from daphne import http_protocol
from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.sessions.backends.db import SessionStore
from django.http.cookie import parse_cookie

from webapp.accounts import tokens
from webapp.database import in_thread
from webapp.pacing import PacedRequest

ANYBODYS = 1 << 20
MOST = 48 << 20  # a zip of tasks, packed
TOO_LARGE = "The request is larger than {} MiB."
STRANGERS = "Sign in, or send a token, for a request of more than 1 MiB."
MEMBERS = "A source has at most 512 KiB, and a zip of tasks {} MiB."


def known(authorization: str, cookies: str) -> bool:
    """Whether somebody sends this."""
    if authorization:
        return tokens.authenticate(authorization) is not None
    key = parse_cookie(cookies).get(settings.SESSION_COOKIE_NAME)
    if not key:
        return False
    user = get_user(SimpleNamespace(session=SessionStore(key)))
    return bool(user.is_authenticated and user.is_active)


class BoundedRequest(PacedRequest):
    """Twisted tells a request its announced length, then each piece, on the event loop's thread."""

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
        elif self.came > self.room + ANYBODYS:  # what was under way when reading stood still
            self._refuse(ANYBODYS, STRANGERS)

    async def _ask(self) -> None:
        def header(name: bytes) -> str:
            return b"; ".join(self.requestHeaders.getRawHeaders(name) or []).decode("latin-1")

        try:
            somebody = await in_thread(known)(header(b"authorization"), header(b"cookie"))
        except Exception:  # no database, no proof
            somebody = False
        if self.channel is None or self.refused:
            return
        if somebody:
            self.room = MOST
            self.channel.transport.resumeProducing()
        else:
            self._refuse(ANYBODYS, STRANGERS)

    def _refuse(self, most: int, hint: str) -> None:
        """Answers at once and hangs up; what still comes is thrown away."""
        self.refused = True
        problem: dict[str, Any] = {"title": "Content Too Large", "status": 413, "detail": TOO_LARGE.format(most >> 20), "hint": hint}
        body = json.dumps(problem).encode()
        head = f"HTTP/1.1 413 Content Too Large\r\nContent-Type: application/problem+json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        transport = self.channel.transport
        transport.write(head.encode() + body)
        transport.loseConnection()


def bound() -> None:
    """From now on Daphne's requests are these."""
    http_protocol.WebRequest = BoundedRequest
