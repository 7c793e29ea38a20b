"""Files that go out while they are made."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.db import connections
from django.http import HttpRequest, StreamingHttpResponse


def download(request: HttpRequest, pieces: Iterator[bytes], kind: str, name: str) -> StreamingHttpResponse:
    """`pieces` as the file `name`; `pieces` has to be a generator that reads nothing before it is asked for its first piece."""
    response = StreamingHttpResponse(sent(pieces) if isinstance(request, ASGIRequest) else pieces, content_type=kind)
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


async def sent(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Piece by piece off the event loop; under ASGI a plain iterator would be read whole before the first byte is sent.

    All in one thread of its own, whose database connection nobody else uses: a cursor that stays on the server lives as long as that connection.
    It goes back to the pool at the end, also where whoever downloads goes away in the middle.
    """
    thread = ThreadPoolExecutor(1, thread_name_prefix="download")
    following = sync_to_async(_next, thread_sensitive=False, executor=thread)
    try:
        while (piece := await following(pieces)) is not None:
            yield piece
    finally:
        thread.submit(_ended, pieces)
        thread.shutdown(wait=False)


def _next(pieces: Iterator[bytes]) -> bytes | None:
    return next(pieces, None)


def _ended(pieces: Iterator[bytes]) -> None:
    try:
        if hasattr(pieces, "close"):
            pieces.close()
    finally:
        connections.close_all()
