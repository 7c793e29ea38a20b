"""Downloads under ASGI: they are sent piece by piece, all produced in one thread, and the generator is closed even if the client stops reading."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

from webapp.streaming import sent


def made(seen: list[int], closed: threading.Event) -> Iterator[bytes]:
    try:
        for at in range(4):
            seen.append(threading.get_ident())
            yield b"%d" % at
    finally:
        seen.append(threading.get_ident())
        closed.set()


def test_every_piece_is_made_in_the_same_thread():
    seen, closed = [], threading.Event()

    async def read() -> list[bytes]:
        return [piece async for piece in sent(made(seen, closed))]

    assert asyncio.run(read()) == [b"0", b"1", b"2", b"3"]
    assert len(set(seen)) == 1 and seen[0] != threading.get_ident()


def test_whoever_goes_away_leaves_nothing_open():
    seen, closed = [], threading.Event()

    async def leave() -> None:
        answer = sent(made(seen, closed))
        assert await anext(answer) == b"0"
        await answer.aclose()

    asyncio.run(leave())
    assert closed.wait(5) and len(set(seen)) == 1
