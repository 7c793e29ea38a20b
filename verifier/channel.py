"""Frames exchanged between client, judge and parties. Each consists of a JSON object and raw bytes, and is sent over a stream socket whose peer may
be hostile.

Wire format: ``u32 length of the JSON, u64 length of the raw bytes`` (little-endian), then both. Only the judge attaches file descriptors to frames
(through SCM_RIGHTS), and only to frames for a party; it never accepts any.
"""

from __future__ import annotations

import array
import json
import socket
import struct
import time
from dataclasses import dataclass, field
from typing import Any

HEADER = struct.Struct("<IQ")
MAX_JSON = 4 * 1024 * 1024
MAX_FDS = 8
MAX_ARTEFACTS = 512 << 20  # maximum total size of one program's libraries
_CHUNK = 1 << 20


class ChannelError(Exception):
    """Raised when the peer violates the protocol: its frame is too large, is not JSON, or is not an object."""


class ChannelClosed(ChannelError):
    """Raised when the peer has disconnected."""


class ChannelTimeout(ChannelError):
    """Raised when no complete frame arrives before the deadline."""


@dataclass
class Frame:
    message: dict[str, Any]
    raw: bytes = b""
    fds: list[int] = field(default_factory=list)

    def text(self, key: str, default: str = "") -> str:
        """Returns a string field of a message whose field types cannot be trusted."""
        value = self.message.get(key, default)
        return value if isinstance(value, str) else default

    def integer(self, key: str, default: int = 0) -> int:
        value = self.message.get(key, default)
        return value if isinstance(value, int) and not isinstance(value, bool) else default


class Channel:
    """One endpoint of a connected stream socket."""

    def __init__(self, sock: socket.socket, max_json: int = MAX_JSON, accept_fds: bool = False):
        self.sock = sock
        self.max_json = max_json
        self.accept_fds = accept_fds

    def fileno(self) -> int:
        return self.sock.fileno()

    def send(self, message: dict[str, Any], raw: bytes | memoryview = b"", fds: tuple[int, ...] = (), timeout: float | None = 60.0) -> None:
        """Sends a frame. Raises `ChannelClosed` if the peer has disconnected, and `ChannelTimeout` if it does not read."""
        body = json.dumps(message, separators=(",", ":")).encode()
        head = HEADER.pack(len(body), len(raw)) + body
        self.sock.settimeout(timeout)
        try:
            if fds:
                sent = self.sock.sendmsg([head], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
                head = head[sent:]
            self.sock.sendall(head)
            if len(raw):
                self.sock.sendall(raw)
        except TimeoutError:
            raise ChannelTimeout("the peer does not read") from None
        except OSError as error:
            raise ChannelClosed(str(error)) from None

    def receive(self, timeout: float | None = None, max_raw: int = 0) -> Frame:
        """Returns the next frame. `timeout` is in seconds and covers the whole frame. Receiving more than `max_raw` raw bytes is a protocol
        violation."""
        deadline = None if timeout is None else time.monotonic() + timeout
        fds: list[int] = []
        json_length, raw_length = HEADER.unpack(self._exactly(HEADER.size, deadline, fds))
        if json_length > self.max_json or raw_length > max_raw:
            raise ChannelError(f"a frame of {json_length} + {raw_length} bytes is larger than the limit")
        body = self._exactly(json_length, deadline, fds)
        raw = self._exactly(raw_length, deadline, fds) if raw_length else b""
        try:
            message = json.loads(body)
        except (ValueError, RecursionError):
            raise ChannelError("a frame is not JSON") from None
        if not isinstance(message, dict):
            raise ChannelError("a frame is not a JSON object")
        return Frame(message, raw, fds)

    def _exactly(self, count: int, deadline: float | None, fds: list[int]) -> bytes:
        data = bytearray()
        while len(data) < count:
            remaining = None if deadline is None else deadline - time.monotonic()
            if remaining is not None and remaining <= 0:
                raise ChannelTimeout("no answer in time")
            self.sock.settimeout(remaining)
            try:
                part = self._read(min(count - len(data), _CHUNK), fds)
            except TimeoutError:
                raise ChannelTimeout("no answer in time") from None
            except OSError as error:
                raise ChannelClosed(str(error)) from None
            if not part:
                raise ChannelClosed("the peer closed the connection")
            data += part
        return bytes(data)

    def _read(self, count: int, fds: list[int]) -> bytes:
        if not self.accept_fds:
            return self.sock.recv(count)  # the kernel closes any descriptors that a hostile peer attaches
        part, ancillary, _, _ = self.sock.recvmsg(count, socket.CMSG_LEN(MAX_FDS * 4))
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds.extend(array.array("i", data[: len(data) - len(data) % 4]))
        return part

    def close(self) -> None:
        try:
            self.sock.close()
        except OSError:
            pass


def pair() -> tuple[socket.socket, socket.socket]:
    """Returns two connected endpoints whose buffers are large enough that a small frame never blocks."""
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    for end in (left, right):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    return left, right
