"""Sends a run's events as server-sent events, based on the same hub as the websockets.

This is a separate ASGI application beside Django's handler, because that handler occupies a thread until the response ends, and a stream does not end
before its run.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs

from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.db import Error as DatabaseError
from django.http import Http404

from webapp.accounts import tokens
from webapp.accounts.models import User
from webapp.accounts.signed_in import Request, user_of_session
from webapp.api.calls.fields import LARGEST
from webapp.api.calls.limits import limit
from webapp.api.calls.problems import MEDIA_TYPE, TITLES, TOKEN_HINT, CallRefused, ProblemDetails
from webapp.api.calls.query import check
from webapp.api.events import readable_run
from webapp.database import in_thread
from webapp.origins import our_host, same_origin
from webapp.outage import HINT, RETRY_AFTER, SENTENCE, away
from webapp.runs.live.feed import BATCH_EVENTS, within
from webapp.runs.live.hub import hub
from webapp.security import page_headers

Message = dict[str, Any]
Send = Callable[[Message], Awaitable[None]]
Receive = Callable[[], Awaitable[Message]]

HEARTBEAT_SECONDS = 15.0  # proxies close connections that are silent for about a minute
CHECK_SECONDS = 2.0  # how long a revoked token can still be used for reading; changed roles take effect immediately
PIECE_BYTES = 64 * 1024  # limit on data in flight per reader, in addition to the socket's buffer; `send` waits for slow readers (webapp/pacing.py)
RETRY_MS = 1000  # how long a browser waits before it reconnects

STREAM_OPERATION = {
    "operationId": "stream_events",
    "summary": "Follow events",
    "tags": ["events"],
    "description": (
        "Server-sent events: each has the event's seq as `id` and the event as JSON in `data` (type `message`). After a broken connection send the "
        "last `id` back as `Last-Event-ID`, or as `?after=`; nothing is lost and nothing is sent twice. A comment every 15 s keeps the connection; "
        "a reader that reads nothing for a minute is disconnected, and can resume in the same way. At "
        "the end of the run comes an event of type `end` with `{last, state, outcome}`, and the stream closes: do not connect again."
    ),
    "parameters": [
        {"in": "path", "name": "run_id", "required": True, "schema": {"type": "string", "format": "uuid"}},
        {"in": "query", "name": "after", "required": False, "schema": {"type": "integer", "minimum": 0}, "description": "Events with a larger seq."},
        {"in": "header", "name": "Last-Event-ID", "required": False, "schema": {"type": "integer"}, "description": "Takes precedence over `after`."},
    ],
    "responses": {
        200: {"description": "The stream.", "content": {"text/event-stream": {"schema": {"type": "string"}}}},
        **{
            status: {"description": TITLES[status], "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDetails"}}}}
            for status in (400, 401, 403, 404, 422, 429)
        },
    },
    "security": [{"Token": []}, {"Session": []}],
}


async def events_stream(scope: Message, receive: Receive, send: Send) -> None:
    """Serve GET /api/v1/runs/ID/events/stream."""
    try:
        if not our_host(scope):
            raise CallRefused(400, "This host name isn't one of this installation.", "Use a name in ALLOWED_HOSTS.")
        if header_of(scope, b"origin") and not header_of(scope, b"authorization") and not same_origin(scope):
            raise CallRefused(403, "A page of another origin must not follow a run with your session.", TOKEN_HINT)
        if scope["method"] != "GET":
            raise CallRefused(405, "Read a stream with GET.")
        run, cursor = _run_id(scope), _cursor(scope)
        await _check(scope, run, first=True)
        check(_query(scope), ["after"])
    except CallRefused as refused:
        await refuse(send, refused.problem, refused.headers)
        return
    except DatabaseError as error:
        if not away(error):
            raise
        gone = CallRefused(503, SENTENCE, HINT, headers={"Retry-After": RETRY_AFTER})
        await refuse(send, gone.problem, gone.headers)
        return
    writer = asyncio.create_task(_write(scope, send, run, cursor))
    left = asyncio.create_task(_gone(receive))
    try:
        await asyncio.wait({writer, left}, return_when=asyncio.FIRST_COMPLETED)
        if writer.done():
            writer.result()
    finally:
        for task in (writer, left):
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _write(scope: Message, send: Send, run: uuid.UUID, cursor: int) -> None:
    headers = {
        "content-type": "text/event-stream; charset=utf-8",
        "cache-control": "no-store",
        "x-accel-buffering": "no",
        **page_headers(settings.HTTPS),
    }
    await send({"type": "http.response.start", "status": 200, "headers": [(n.encode(), v.encode()) for n, v in headers.items()]})
    await _say(send, f"retry: {RETRY_MS}\n\n")
    checked, epoch = time.monotonic(), hub().access_epoch
    async with hub().follow(str(run)) as follower:
        while True:
            if time.monotonic() - checked > CHECK_SECONDS or hub().access_epoch != epoch:
                try:
                    await _check(scope, run)
                except CallRefused:
                    break  # the client then reconnects and learns the reason
                checked, epoch = time.monotonic(), hub().access_epoch
            lines = within(await hub().read(follower.feed, cursor, BATCH_EVENTS, PIECE_BYTES), PIECE_BYTES)
            if lines:
                cursor = lines[-1][0]
                await _say(send, "".join(f"id: {seq}\ndata: {text}\n\n" for seq, text in lines))
                continue
            ended = await hub().query(ENDED, {"run": run, "cursor": cursor})
            if ended:
                await _say(send, f"event: end\nid: {cursor}\ndata: {json.dumps({'last': cursor, 'state': 'finished', 'outcome': ended[0]})}\n\n")
                break
            try:
                await asyncio.wait_for(follower.woken(), HEARTBEAT_SECONDS)
            except TimeoutError:
                await _say(send, ": still here\n\n")
    await send({"type": "http.response.body", "body": b"", "more_body": False})


ENDED = "SELECT outcome FROM runs_run WHERE id = %(run)s AND state = 'finished' AND last_seq <= %(cursor)s"


async def _say(send: Send, text: str) -> None:
    await send({"type": "http.response.body", "body": text.encode(), "more_body": True})


async def _check(scope: Message, run: uuid.UUID, first: bool = False) -> None:
    """Raise `CallRefused` if the caller is not authenticated, or is not (or no longer) allowed to see the run."""
    await in_thread(_allowed)(scope, run, first)


def _allowed(scope: Message, run: uuid.UUID, first: bool) -> None:
    header, asker = header_of(scope, b"authorization"), Request()
    if header:
        grant = tokens.authenticate(header)
        if grant is None:
            raise unauthorised(header)
        asker.user, asker.grant = grant.user, grant
    else:
        user = _signed_in(scope)
        if user is None:
            raise unauthorised()
        asker.user, asker.grant = user, None
    if first:
        limit(asker)
    try:
        readable_run(asker, run)
    except Http404:
        raise CallRefused(404, "There is no such run, or you may not see it.", "GET /api/v1/runs lists the runs that you can see.") from None
    except PermissionDenied as error:
        raise CallRefused(403, str(error), "GET /api/v1/me says what you may do.") from None


def unauthorised(header: str = "") -> CallRefused:
    """Return a 401 for a request with or without a token."""
    if header:
        return CallRefused(
            401, "This token is unknown, revoked or expired.", TOKEN_HINT, headers={"WWW-Authenticate": 'Bearer error="invalid_token"'}
        )
    return CallRefused(401, "This needs a token, or a session of the pages.", TOKEN_HINT, headers={"WWW-Authenticate": 'Bearer realm="stitchwork"'})


def _signed_in(scope: Message) -> User | None:
    """Return the session's user after reading the session again, or None if it has ended in the meantime."""
    kept = scope.get("session")
    if kept is None or not kept.session_key:
        return None
    return user_of_session(kept.session_key)


def header_of(scope: Message, name: bytes) -> str:
    return next((value.decode("latin-1") for key, value in scope["headers"] if key.lower() == name), "")


def _run_id(scope: Message) -> uuid.UUID:
    run_id: uuid.UUID = scope["url_route"]["kwargs"]["run_id"]
    return run_id


def _query(scope: Message) -> dict[str, list[str]]:
    return parse_qs(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)


def _cursor(scope: Message) -> int:
    text = header_of(scope, b"last-event-id") or _query(scope).get("after", ["0"])[-1] or "0"
    if not (text.isascii() and text.isdecimal() and int(text[:20]) <= LARGEST and len(text) <= 20):
        raise CallRefused(400, "The cursor isn't the seq of an event.", "Send the last `id` that you got as Last-Event-ID, or leave it out.")
    return int(text)


async def refuse(send: Send, problem: ProblemDetails, headers: dict[str, str]) -> None:
    sent = {"content-type": MEDIA_TYPE, "cache-control": "no-store", **page_headers(settings.HTTPS), **headers}
    await send({"type": "http.response.start", "status": problem.status, "headers": [(n.lower().encode(), v.encode()) for n, v in sent.items()]})
    await send({"type": "http.response.body", "body": problem.model_dump_json().encode()})
