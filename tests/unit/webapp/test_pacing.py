"""Output that a reader does not accept is not buffered for it: `send` waits, and a client that reads nothing at all is disconnected."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from daphne import http_protocol
from twisted.internet.testing import StringTransport

from webapp import pacing
from webapp.bodies import BoundedRequest

pytestmark = pytest.mark.asyncio
PIECE = b"x" * 65536


class Server:
    """Has what Daphne's requests need from their server."""

    server_name = ""
    connections: dict = {}
    request_buffer_size = 8192
    http_timeout = None
    root_path = ""

    def __init__(self) -> None:
        self.gone: list = []

    def protocol_connected(self, protocol) -> None: ...

    def protocol_disconnected(self, protocol) -> None:
        self.gone.append(protocol)

    def log_action(self, *_: object) -> None: ...

    def create_application(self, protocol, scope):
        return asyncio.Queue()

    async def handle_reply(self, protocol, message) -> None:
        protocol.handle_reply(message)


class Line(StringTransport):
    """A connection whose other end reads on command; like Twisted's own, it pauses a producer beyond 64 KiB."""

    disconnected = False

    def write(self, data: bytes) -> None:
        super().write(data)
        if self.producer is not None and len(self.value()) > 65536:
            self.producer.pauseProducing()

    def writeSequence(self, pieces) -> None:
        self.write(b"".join(pieces))

    def read(self) -> int:
        size = len(self.value())
        self.clear()
        if self.producer is not None:
            self.producer.resumeProducing()
        return size

    def abortConnection(self) -> None:
        self.aborted = True


@pytest.fixture
def connection():
    server = type("Paced", (Server,), {})
    pacing.pace(server)
    one, line = server(), Line()
    channel = http_protocol.http.HTTPChannel()
    channel.factory = SimpleNamespace(server=one, log=lambda request: None, _logDateTime="", _updateLogDateTime=lambda: None)
    channel.requestFactory = BoundedRequest
    channel.makeConnection(line)
    request = BoundedRequest(channel, False)
    request.clientproto, request.method, request.uri = b"HTTP/1.1", b"GET", b"/"
    channel.requests.append(request)
    line.clear()
    return one, request, line


async def begin(server, request) -> None:
    await server.handle_reply(request, {"type": "http.response.start", "status": 200, "headers": []})


def piece(last: bool = False) -> dict:
    return {"type": "http.response.body", "body": b"" if last else PIECE, "more_body": not last}


async def test_send_waits_for_a_reader_and_goes_on_when_it_reads(connection):
    server, request, line = connection
    await begin(server, request)
    sent = 0

    async def send_all() -> None:
        nonlocal sent
        for _ in range(100):
            await server.handle_reply(request, piece())
            sent += 1

    sending = asyncio.create_task(send_all())
    for _ in range(20):
        await asyncio.sleep(0)
    assert sent < 3 and len(line.value()) < 3 * len(PIECE), "6.5 MB were to be sent, and nobody reads"
    read = 0
    while not sending.done():
        read += line.read()
        await asyncio.sleep(0)
        assert len(line.value()) < 3 * len(PIECE)
    await server.handle_reply(request, piece(last=True))
    assert read + line.read() > 100 * len(PIECE) and server.gone == [request]


async def test_a_reader_that_takes_nothing_is_hung_up_on(connection, monkeypatch):
    monkeypatch.setattr(pacing, "PATIENCE_SECONDS", 0.01)
    server, request, line = connection
    await begin(server, request)
    async with asyncio.timeout(5):
        for _ in range(3):
            await server.handle_reply(request, piece())
    assert line.aborted


async def test_who_goes_away_lets_the_sender_go_on(connection):
    server, request, line = connection
    await begin(server, request)
    sending = asyncio.create_task(server.handle_reply(request, piece()))
    again = asyncio.create_task(server.handle_reply(request, piece()))
    await asyncio.sleep(0)
    request.connectionLost(ConnectionError("gone"))
    async with asyncio.timeout(5):
        await asyncio.gather(sending, again)
