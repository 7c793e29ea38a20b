"""One exchange over HTTP: the request as formatted by the dialect, and the reply, which is parsed while it streams."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

import httpx

from agents.llm.answer import Answer
from agents.llm.faults import Fault, broken, of_status, shorten
from agents.llm.messages import Delta, Request
from agents.llm.sse import EventStream, EventTooLong

if TYPE_CHECKING:
    from agents.llm.server import Server

OnDelta = Callable[[Delta], Awaitable[None]]
LINGER = 10.0  # seconds to wait after the finish reason, for late usage data and for servers that never close the connection
LARGEST_ANSWER = 64 << 20  # bytes
LARGEST_ERROR = 64 << 10
SECRET_LENGTH = 20  # shorter "keys" are words such as EMPTY, which may occur in a reply
NO_PROXY_FOR_THIS_HOST: dict[str, httpx.AsyncBaseTransport | None] = dict.fromkeys(["all://localhost", "all://127.0.0.1", "all://[::1]"])
for _name in ("httpx", "httpcore"):  # these libraries print headers at DEBUG level, and a server may echo our request headers
    logging.getLogger(_name).setLevel(logging.WARNING)


class Dialect(Protocol):
    path: str

    def headers(self, key: str | None) -> dict[str, str]: ...

    def body(self, request: Request, max_tokens: int) -> dict[str, Any]: ...

    def adapt(self, status: int, error: Mapping[str, Any] | str) -> bool: ...

    def event(self, data: str, answer: Answer) -> list[Delta]: ...

    def whole(self, data: Mapping[str, Any], answer: Answer) -> list[Delta]: ...


class Call:
    """All attempts to get one reply. `sent` counts requests. Text is passed to `on_delta` only once."""

    def __init__(self, server: Server, request: Request, on_delta: OnDelta):
        self.server, self.request = server, request
        self.answer = Answer()
        self.sent = 0
        self._passing = Passing(on_delta)

    async def attempt(self) -> Answer:
        """Makes one exchange. A request that is rejected because of an optional field is sent again immediately without that field."""
        limits = self.server.profile.limits
        self.answer = Answer()
        self._passing.begin()
        try:
            async with asyncio.timeout(limits.total_seconds) as patience:
                while not await self._exchange():
                    pass
        except TimeoutError:
            if not patience.expired():
                raise
            raise broken(f"no complete reply within {limits.total_seconds:g} s") from None
        except httpx.ConnectTimeout:
            raise broken(f"no connection to {server_of(self.server.profile.base_url)} within {limits.connect_seconds:g} s") from None
        except httpx.TimeoutException:
            raise broken(f"the server was silent for {limits.read_seconds:g} s") from None
        except httpx.HTTPError as error:
            raise _of_transport(error, server_of(self.server.profile.base_url)) from None
        return self.answer

    async def _exchange(self) -> bool:
        server = self.server
        limits, dialect, key = server.profile.limits, server.dialect, server.key()
        timeout = httpx.Timeout(limits.read_seconds, connect=limits.connect_seconds)
        client = httpx.AsyncClient(timeout=timeout, transport=server.transport, verify=tls(), mounts=NO_PROXY_FOR_THIS_HOST)
        body = dialect.body(self.request, server.max_tokens(self.request))
        headers = {"Accept": "text/event-stream, application/json", "User-Agent": "stitchwork"} | dialect.headers(key)
        self.sent += 1
        async with client, client.stream("POST", server.profile.base_url + dialect.path, json=body, headers=headers) as response:
            if response.status_code != 200:
                error = _error_of(await _beginning(response))
                if dialect.adapt(response.status_code, error):
                    return False
                raise of_status(response.status_code, error, response.headers, server.profile.api_key_env)
            await self._receive(response, key if key and len(key) >= SECRET_LENGTH else None)
        return True

    async def _receive(self, response: httpx.Response, secret: str | None) -> None:
        body = Body()
        async with aclosing(self._pieces(response)) as pieces:
            async for piece in pieces:
                await self._take(body.feed(piece), secret)
                if self.answer.ended:
                    break
        await self._take(body.feed(b"", final=True), secret)
        self.answer.streamed = body.kind == "events"
        if body.kind == "json":  # the server does not stream its reply
            await self._pass(self.server.dialect.whole(_object(body.held, secret), self.answer))
            self.answer.finish = self.answer.finish or "other"
        elif body.kind == "page":
            title = title_of(body.held.decode(errors="replace"))
            named = f" titled {shorten(title)!r}" if title else ""
            raise Fault("protocol", f"the server answers with a web page{named}", "check base_url: most servers want it to end with /v1")
        await self._pass(self.answer.close())

    async def _pieces(self, response: httpx.Response) -> AsyncGenerator[bytes]:
        """Yields the body as it arrives. Once the reply is complete, the server may keep the connection open or drop it; neither is an error."""
        pieces = response.aiter_bytes()  # closed with the response
        while True:
            finished = self.answer.finish is not None
            try:
                async with asyncio.timeout(LINGER if finished else None) as patience:
                    piece = await anext(pieces)
            except StopAsyncIteration:
                return
            except TimeoutError:
                if not patience.expired():
                    raise
                return
            except httpx.TransportError:
                if not finished:
                    raise
                return
            yield piece

    async def _take(self, events: list[str], secret: str | None) -> None:
        for data in events:
            if self.answer.ended:
                return
            await self._pass(self.server.dialect.event(data.replace(secret, "[key]") if secret else data, self.answer))

    async def _pass(self, deltas: list[Delta]) -> None:
        for delta in deltas:
            await self._passing.give(delta)


class Body:
    """A body, classified by its content rather than its content type: events, one JSON object, or a page for people."""

    def __init__(self) -> None:
        self.kind = ""  # "events", "json" or "page"; empty until the first character has arrived
        self.held = b""
        self._size = 0
        self._stream = EventStream()

    def feed(self, data: bytes, final: bool = False) -> list[str]:
        """Returns the events that are now complete and buffers the rest."""
        self._size += len(data)
        if self._size > LARGEST_ANSWER:
            raise Fault("protocol", f"the answer is longer than {LARGEST_ANSWER >> 20} MiB", "look at base_url in the profile")
        if self.kind != "events":
            self.held += data
            if self.kind:
                return []
            start = self.held.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
            self.kind = {b"": "", b"{": "json", b"[": "json", b"<": "page"}.get(start, "events")
            if self.kind != "events":
                return []
            data, self.held = self.held, b""
        try:
            return self._stream.feed(data, final)
        except EventTooLong as error:
            raise Fault("protocol", f"the stream holds {error}", "look at base_url in the profile") from None


class Passing:
    """Forwards deltas. After a retry the text starts over, so only text beyond what was already forwarded is new. If the text differs, nothing is
    forwarded until the reply is complete."""

    def __init__(self, on_delta: OnDelta):
        self._on_delta = on_delta
        self._given = {"text": "", "reasoning": ""}
        self._fresh: dict[str, list[str]] = {"text": [], "reasoning": []}
        self._at = {"text": 0, "reasoning": 0}
        self._differs = False

    def begin(self) -> None:
        for kind, pieces in self._fresh.items():
            self._given[kind] += "".join(pieces)
            pieces.clear()
        self._at = dict.fromkeys(self._at, 0)
        self._differs = False

    async def give(self, delta: Delta) -> None:
        given, at = self._given[delta.kind], self._at[delta.kind]
        known = given[at : at + len(delta.text)]
        self._at[delta.kind] = at + len(delta.text)
        self._differs = self._differs or not delta.text.startswith(known)
        fresh = delta.text[len(known) :]
        if fresh and not self._differs:
            self._fresh[delta.kind].append(fresh)
            await self._on_delta(Delta(kind=delta.kind, text=fresh))


@cache
def tls() -> ssl.SSLContext:
    """Returns the TLS context, which is created only once because reading the certificates takes tens of milliseconds."""
    return httpx.create_ssl_context()


def server_of(address: str) -> str:
    """Returns host and port."""
    return urlsplit(address).netloc


def _of_transport(error: httpx.HTTPError, where: str) -> Fault:
    said = shorten(str(error)) or type(error).__name__
    if "CERTIFICATE_VERIFY_FAILED" in said:
        return Fault("unreachable", f"the server's certificate is not trusted: {said}", "set SSL_CERT_FILE to your authority's certificate")
    if isinstance(error, httpx.ConnectError):
        return Fault("unreachable", f"no connection to {where}: {said}", "check that the server runs and base_url is correct", again=True)
    return broken(f"the connection broke: {said}")


async def _beginning(response: httpx.Response) -> bytes:
    held = b""
    async for piece in response.aiter_bytes():
        held += piece
        if len(held) >= LARGEST_ERROR:
            break
    return held[:LARGEST_ERROR]


def _error_of(body: bytes) -> Mapping[str, Any] | str:
    text = body.decode(errors="replace").strip()
    try:
        found = json.loads(text)
    except ValueError:
        return title_of(text) if text.startswith("<") else text
    if isinstance(found, list) and found:  # as sent by Google's gateway
        found = found[0]
    return found if isinstance(found, Mapping) else str(found)


def title_of(page: str) -> str:
    found = re.search(r"<title[^>]*>(.*?)</title", page[:LARGEST_ERROR], re.IGNORECASE | re.DOTALL)
    return found[1].strip() if found else ""


def _object(body: bytes, secret: str | None) -> Mapping[str, Any]:
    text = body.decode("utf-8-sig", errors="replace")
    try:
        found = json.loads(text.replace(secret, "[key]") if secret else text)
    except ValueError:
        raise broken("the answer is not complete JSON") from None
    if not isinstance(found, Mapping):
        raise Fault("protocol", "the answer is a list, not an object", "look at base_url in the profile")
    return found
