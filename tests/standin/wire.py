"""The part of HTTP/1.1 that the stand-in needs, over raw streams so that it can break a connection at any point."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from dataclasses import dataclass
from typing import Any

MAX_BODY = 32 << 20  # bytes
REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    413: "Content Too Large",
    429: "Too Many Requests",
    500: "Internal Server Error",
}


class BadRequest(Exception):
    """Raised if a request cannot be read. The message is sent in the response."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Incoming:
    method: str
    path: str
    headers: dict[str, str]  # names in lower case
    body: bytes


async def read_request(reader: asyncio.StreamReader) -> Incoming | None:
    """Returns the next request of a connection, or None if the client has closed it."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    except asyncio.LimitOverrunError:
        raise BadRequest(400, "the headers are too long") from None
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3:
        raise BadRequest(400, "this is no HTTP request")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
    length = headers.get("content-length", "0")
    if not length.isdigit() or "transfer-encoding" in headers:
        raise BadRequest(400, "only bodies with a Content-Length are read")
    if int(length) > MAX_BODY:
        raise BadRequest(413, "the body is too long")
    try:
        body = await reader.readexactly(int(length))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    return Incoming(words[0], words[1].partition("?")[0], headers, body)


class Answer:
    """Writes one response, whole or as a stream of chunks."""

    def __init__(self, writer: asyncio.StreamWriter):
        self.writer = writer
        self.begun = False

    async def whole(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        data = json.dumps(body).encode()
        self._head(status, {"Content-Type": "application/json", "Content-Length": str(len(data)), **(headers or {})})
        self.writer.write(data)
        await self.writer.drain()

    async def open_stream(self) -> None:
        self._head(200, {"Content-Type": "text/event-stream", "Cache-Control": "no-store", "Transfer-Encoding": "chunked"})
        await self.writer.drain()

    async def piece(self, text: str) -> None:
        """Writes a chunk of an open stream."""
        data = text.encode()
        self.writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        await self.writer.drain()

    async def close_stream(self) -> None:
        self.writer.write(b"0\r\n\r\n")
        await self.writer.drain()

    def reset(self) -> None:
        """Ends the connection with a reset instead of a regular close, as a server that dies does."""
        sock = self.writer.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    def _head(self, status: int, headers: dict[str, str]) -> None:
        self.begun = True
        lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Unknown')}", *(f"{name}: {value}" for name, value in headers.items())]
        self.writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
