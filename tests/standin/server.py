"""The server: one asyncio loop, any number of connections, and the routes of OpenAI and Anthropic."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tests.standin.answers import Author
from tests.standin.faults import Fault, FaultPlan
from tests.standin.protocol import Conversation, Dialect, Said, conversation, error_body, events, whole
from tests.standin.reading import Asked, Unreadable, read
from tests.standin.wire import Answer, BadRequest, Incoming, read_request

log = logging.getLogger(__name__)

ROUTES: dict[str, Dialect] = {"/v1/chat/completions": "openai", "/v1/messages": "anthropic"}
MODEL = "stand-in"
HEAD_LIMIT = 64 << 10  # bytes of a request's headers
SIGN_OF_LIFE = 1.0  # seconds between comments in a stream while its answer is being prepared


class StandIn:
    """A server to be used as `async with StandIn(...) as server`, and then through `server.base_url`. `record` receives one entry per request, for
    callers that count them."""

    def __init__(
        self,
        faults: FaultPlan | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        seconds: float = 0.0,  # time that each answer takes
        hang: float = 60.0,  # seconds for which a hanging answer is held, unless the client disconnects earlier
        key: str | None = None,  # the key that clients must send
        author: Author | None = None,  # to share one capturing process between servers
        on_request: Callable[[dict[str, Any]], None] | None = None,
    ):
        self.faults = faults or FaultPlan()
        self.host, self.port, self.seconds, self.hang, self.key = host, port, seconds, hang, key
        self.record: list[dict[str, Any]] = []
        self._author, self._own_author = author or Author(), author is None
        self._on_request = on_request
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task] = set()
        self._number = 0

    @property
    def base_url(self) -> str:
        return f"http://{self.host}:{self.port}/v1"

    async def start(self) -> StandIn:
        self._server = await asyncio.start_server(self._connected, self.host, self.port, limit=HEAD_LIMIT)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        if self._own_author:
            await self._author.close()

    async def __aenter__(self) -> StandIn:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        self._connections.add(task)
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._connections.discard(task)
            writer.close()
            with suppress(Exception, asyncio.CancelledError):
                await writer.wait_closed()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Handles one request and returns whether the connection can serve another."""
        answer = Answer(writer)
        dialect: Dialect = "openai"
        try:
            incoming = await read_request(reader)
            if incoming is None:
                return False
            dialect = ROUTES.get(incoming.path, "openai")
            if incoming.path in ROUTES and incoming.method == "POST":
                return await self._reply(incoming, dialect, reader, answer)
            if incoming.method == "GET" and incoming.path == "/v1/models":
                await answer.whole(200, {"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "tests"}]})
                return True
            raise BadRequest(404, f"there is no {incoming.method} {incoming.path} here")
        except BadRequest as error:
            await answer.whole(error.status, error_body(dialect, error.status, str(error)))
            return error.status != 413
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception:
            log.exception("the stand-in has a defect, or cannot answer this")
            if not answer.begun:
                await answer.whole(500, error_body(dialect, 500, "the stand-in failed; its own log says why"))
            return False

    async def _reply(self, incoming: Incoming, dialect: Dialect, reader: asyncio.StreamReader, answer: Answer) -> bool:
        given = incoming.headers.get("authorization", "").removeprefix("Bearer ") or incoming.headers.get("x-api-key", "")
        if self.key is not None and given != self.key:
            raise BadRequest(401, "this key is not known")
        said = conversation(dialect, incoming.body)
        try:
            asked = read(said.turns)
        except Unreadable as error:
            raise BadRequest(400, f"the stand-in cannot answer this prompt: {error}") from None
        began = time.monotonic()
        request = hashlib.sha256(incoming.body).hexdigest()
        fault = self.faults.choose(asked.place, request, asked.evidence, asked.faults, asked.cheats)
        self._number += 1
        entry = {"number": self._number, "role": asked.role, "situation": asked.situation, "place": asked.place, "fault": str(fault or "")}
        self.record.append(entry)
        try:
            return await self._answer(said, asked, fault, reader, answer)
        finally:
            entry["seconds"] = round(time.monotonic() - began, 3)
            if self._on_request is not None:
                self._on_request(entry)

    async def _answer(self, said: Conversation, asked: Asked, fault: Fault | None, reader: asyncio.StreamReader, answer: Answer) -> bool:
        kind = fault.kind if fault is not None and fault.transport else ""
        if kind == "rate-limited":
            await answer.whole(429, error_body(said.dialect, 429, "too many requests"), {"Retry-After": "1"})
            return True
        if kind == "server-error":
            await answer.whole(500, error_body(said.dialect, 500, "the server failed"))
            return True
        if kind == "connection-reset":
            answer.reset()
            return False
        if kind == "hang":
            if said.stream:
                await answer.open_stream()
            await self._hold(reader)
            answer.reset()
            return False
        number = self._number
        if said.stream:
            await answer.open_stream()
        text = await self._work(asked, fault, answer if said.stream else None)
        reply = shortened(Said(text, reasoning=asked.thought), said.max_tokens)
        if not said.stream:
            await asyncio.sleep(self.seconds)
            if kind == "truncated-stream":
                answer.reset()
                return False
            await answer.whole(200, whole(said, reply, number))
            return True
        parts = list(events(said, reply, number))
        if kind == "truncated-stream":
            parts = parts[: max(2, len(parts) // 2)]
        for part in parts:
            await answer.piece(part)
            await asyncio.sleep(self.seconds / len(parts))
        if kind == "truncated-stream":
            return False  # the connection closes without the end of the stream
        await answer.close_stream()
        return True

    async def _work(self, asked: Asked, fault: Fault | None, stream: Answer | None) -> str:
        """Returns the text. In the meantime, a stream shows that the server is alive."""
        task = asyncio.create_task(self._author.answer(asked, fault))
        try:
            while not (await asyncio.wait({task}, timeout=SIGN_OF_LIFE))[0]:
                if stream is not None:
                    await stream.piece(": working\n\n")
            return task.result()
        finally:
            task.cancel()

    async def _hold(self, reader: asyncio.StreamReader) -> None:
        """Waits until the client disconnects or the time is up."""
        with suppress(TimeoutError, ConnectionError):
            await asyncio.wait_for(reader.read(1), self.hang)


def shortened(said: Said, max_tokens: int | None) -> Said:
    """Truncates the reply at the client's limit, as a server does."""
    if max_tokens is None or said.output_tokens <= max_tokens:
        return said
    return Said(said.text[: max(0, max_tokens * 4 - len(said.reasoning))], said.reasoning, "length")
