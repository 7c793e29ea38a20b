"""A minimal server that sends exactly the bytes that a test specifies, and records the requests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

Answer = Callable[["Asked", asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Asked:
    path: str
    headers: dict[str, str]
    body: dict
    number: int  # 1, 2, ... on this server


@dataclass
class Wire:
    url: str = ""
    asked: list[Asked] = field(default_factory=list)
    closed: asyncio.Event = field(default_factory=asyncio.Event)  # a client disconnected before it had received its answer
    at_once: int = 0
    most_at_once: int = 0


@asynccontextmanager
async def serving(*answers: Answer) -> AsyncIterator[Wire]:
    """Gives the first answer to the first request, and so on; the last answer serves all further requests."""
    wire = Wire()
    open_writers: set[asyncio.StreamWriter] = set()

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_writers.add(writer)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:]) if name}
            body = json.loads(await reader.readexactly(int(headers.get("content-length", 0))) or b"{}")
            wire.asked.append(Asked(head[0].split(" ")[1], headers, body, len(wire.asked) + 1))
            wire.at_once += 1
            wire.most_at_once = max(wire.most_at_once, wire.at_once)
            answer = asyncio.create_task(answers[min(len(wire.asked), len(answers)) - 1](wire.asked[-1], writer))
            gone = asyncio.create_task(reader.read())  # ends when the client closes
            await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                wire.closed.set()
                answer.cancel()
            gone.cancel()
            wire.at_once -= 1
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            open_writers.discard(writer)
            writer.close()

    server = await asyncio.start_server(connection, "127.0.0.1", 0)
    wire.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        yield wire
    finally:
        server.close()
        for writer in list(open_writers):
            writer.close()


def raw(*pieces: bytes, pause: float = 0.0, reset: bool = False) -> Answer:
    """Sends these pieces, one write each, and then closes the connection, either cleanly or with a reset."""

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pause)
        if reset:
            writer.transport.abort()

    return answer


def reply(body: bytes | dict, status: str = "200 OK", kind: str = "application/json", **headers: str) -> Answer:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(data)}", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return raw("\r\n".join(lines).encode() + b"\r\n\r\n" + data)


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


def stream(*pieces: bytes, pause: float = 0.0, reset: bool = False) -> Answer:
    """Sends an event stream that ends when the connection closes."""
    return raw(HEAD, *pieces, pause=pause, reset=reset)


def hang(*pieces: bytes) -> Answer:
    """Sends these pieces, and then nothing more."""

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
        await writer.drain()
        await asyncio.Event().wait()

    return answer


def event(data: dict | str, name: str = "") -> bytes:
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return (f"event: {name}\n" if name else "").encode() + b"data: " + text.encode() + b"\n\n"


def chunk(text: str = "", finish: str | None = None, **more) -> bytes:
    """Returns one chunk of a chat completion."""
    delta = {"content": text} if text else {}
    return event({"model": "tiny-1", "choices": [{"index": 0, "delta": delta | more.pop("delta", {}), "finish_reason": finish}], **more})


def usage(prompt: int = 10, completion: int = 5, **more) -> bytes:
    return event({"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion, **more}})


DONE = event("[DONE]")


def words(text: str = "Hello there", prompt: int = 10, completion: int = 5) -> Answer:
    """Sends a complete valid reply, one word at a time."""
    pieces = [chunk(word + " ") for word in text.split(" ")[:-1]] + [chunk(text.split(" ")[-1]), chunk(finish="stop")]
    return stream(*pieces, usage(prompt, completion), DONE)
