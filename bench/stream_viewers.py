"""The viewers of bench/stream.py: websocket clients (RFC 6455) that store what arrives and acknowledge it as the page does.

They share the machine with the server that they measure, and a general-purpose client library spends as much time on a frame as the server does. This
module therefore implements only what a viewer of a run needs: the opening handshake, whole text frames from the server, pings, and acknowledgements.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import re
import time
from pathlib import Path
from urllib.parse import urlsplit

PAGE = Path(__file__).resolve().parents[1] / "static/js/run/connection.js"
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
TEXT, CLOSE, PING, PONG = 1, 8, 9, 10
LAST = re.compile(rb'"last":(\d+)')


def rule(name: str) -> int:
    """Reads a constant of the page's own script."""
    return int(re.search(rf"^const {name} = (\d+)", PAGE.read_text(), re.MULTILINE)[1])


ACK_FRAMES, ACK_CHARACTERS = rule("ACK_FRAMES"), rule("ACK_CHARACTERS")


class Viewer(asyncio.Protocol):
    """The page's end of one socket. It stores what has arrived, and when, until event number `until` arrives. With `silent`, it never acknowledges
    anything."""

    def __init__(self, url: str, cookie: str, origin: str, until: int, silent: bool = False):
        parts = urlsplit(url)
        self.key = base64.b64encode(os.urandom(16))
        lines = [
            f"GET {parts.path} HTTP/1.1", f"Host: {parts.netloc}", "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13",
            f"Sec-WebSocket-Key: {self.key.decode()}", f"Origin: {origin}", f"Cookie: {cookie}", "", "",
        ]  # fmt: skip
        self.request = "\r\n".join(lines).encode()
        self.until, self.silent = until, silent
        self.arrived: list[tuple[float, bytes]] = []
        self.last = self.frames = self.octets = 0
        self.rest = b""
        self.shaken = False
        loop = asyncio.get_running_loop()
        self.opened: asyncio.Future[None] = loop.create_future()
        self.done: asyncio.Future[None] = loop.create_future()

    async def connect(self, host: str, port: int) -> None:
        """Connects, and returns once the run is open."""
        await asyncio.get_running_loop().create_connection(lambda: self, host, port)
        await self.opened

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        transport.write(self.request)

    def connection_lost(self, error: Exception | None) -> None:
        for waiting in (self.opened, self.done):
            if not waiting.done():
                waiting.set_exception(ConnectionError(f"the server closed the connection of a viewer at event {self.last}"))
                waiting.exception()  # if a caller is waiting, it receives the exception; otherwise the exception is ignored

    def data_received(self, data: bytes) -> None:
        now = time.time()
        data = self.rest + data if self.rest else data
        at = 0
        if not self.shaken:
            at = data.find(b"\r\n\r\n") + 4
            if at < 4:
                self.rest = data
                return
            self.shake(data[:at])
        while (found := frame_at(data, at)) is not None:
            opcode, begin, at = found
            self.take(opcode, data[begin:at], now)
        self.rest = data[at:]

    def shake(self, answer: bytes) -> None:
        accepted = base64.b64encode(hashlib.sha1(self.key + GUID).digest())
        if not answer.startswith(b"HTTP/1.1 101 ") or accepted not in answer or b"sec-websocket-extensions" in answer.lower():
            raise ConnectionError(f"no websocket: {answer[:60]!r}")
        self.shaken = True
        self.say(TEXT, b'{"type":"open","since":0}')
        self.opened.set_result(None)

    def take(self, opcode: int, payload: bytes, now: float) -> None:
        if opcode == PING:
            self.say(PONG, payload)
            return
        if opcode != TEXT:
            self.transport.close()
            return
        self.arrived.append((now, payload))
        self.last = int(LAST.search(payload, len(payload) - 80)[1])
        self.frames += 1
        self.octets += len(payload)
        if not self.silent and (self.frames >= ACK_FRAMES or self.octets >= ACK_CHARACTERS):
            self.frames = self.octets = 0
            self.say(TEXT, b'{"type":"ack","seq":%d}' % self.last)
        if self.last >= self.until and not self.done.done():
            self.done.set_result(None)

    def say(self, opcode: int, payload: bytes) -> None:
        """Sends a masked frame, as a client must; a mask of zeros leaves the bytes unchanged."""
        self.transport.write(bytes((0x80 | opcode, 0x80 | len(payload))) + b"\0\0\0\0" + payload)


def frame_at(data: bytes, at: int) -> tuple[int, int, int] | None:
    """Returns the opcode and the start and end of the payload of the complete, unmasked frame at `at`, or None if it has not fully arrived."""
    if len(data) - at < 2:
        return None
    first, size = data[at], data[at + 1]
    if not first & 0x80 or size & 0x80:
        raise ConnectionError("a fragmented or masked frame: this server sends none")
    at += 2
    if size >= 126:
        octets = 2 if size == 126 else 8
        size = int.from_bytes(data[at : at + octets])
        at += octets
    return (first & 0x0F, at, at + size) if len(data) >= at + size else None
