"""Streams files while they are being produced."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.db import connections
from django.http import HttpRequest, StreamingHttpResponse


def download(request: HttpRequest, pieces: Iterator[bytes], kind: str, name: str) -> StreamingHttpResponse:
    """Sends `pieces` as a file called `name`. `pieces` must be a generator that reads nothing until its first piece is requested."""
    response = StreamingHttpResponse(sent(pieces) if isinstance(request, ASGIRequest) else pieces, content_type=kind)
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


async def sent(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Produces the pieces outside the event loop. Under ASGI, a plain iterator would be read completely before the first byte is sent.

    One dedicated thread with its own database connection produces all pieces, because a server-side cursor lives only as long as its connection. The
    connection returns to the pool at the end, even if the client disconnects midway.
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
