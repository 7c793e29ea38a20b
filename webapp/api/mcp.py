"""The tools for coding agents over HTTP, at /mcp: what `stitchwork mcp` serves over stdio, for agents that have nothing of ours installed.

Stateless, an answer a request, so that any web process can take any of them. The tools call the API in this process, with the caller's own token.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
from mcp.server.mcpserver import Context
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings

from stitchwork.asking import AsyncApi
from stitchwork.tools import build_server
from webapp.accounts import tokens
from webapp.api.calls.problems import Refused
from webapp.api.stream import header_of, refuse, unauthorised
from webapp.database import in_thread

Message = dict[str, Any]
Application = Callable[[Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]]

log = logging.getLogger(__name__)


def mcp_application(pages: Application) -> Application:
    """`pages` answers the API's calls."""
    managers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Manager] = weakref.WeakKeyDictionary()

    async def serve(scope: Message, receive: Any, send: Any) -> None:
        try:
            header = header_of(scope, b"authorization")
            if not header or await in_thread(tokens.authenticate)(header) is None:
                raise unauthorised(header)
        except Refused as refused:
            await refuse(send, refused.problem, refused.headers)
            return
        manager = managers.setdefault(asyncio.get_running_loop(), Manager(pages))
        await (await manager.ready()).handle_request(scope, receive, send)

    return serve


class Manager:
    """The SDK's session manager, running in a task of its own: Daphne tells applications nothing of its beginning or end."""

    def __init__(self, pages: Application):
        def connect(ctx: Context) -> AsyncApi:
            headers = ctx.headers or {}
            transport = httpx.ASGITransport(app=pages, raise_app_exceptions=False)
            return AsyncApi(f"http://{headers.get('host', 'localhost')}", headers.get("authorization", ""), transport)

        self._server = build_server(connect, local=False)
        self._task: asyncio.Task[None] | None = None
        self._manager: StreamableHTTPSessionManager | None = None
        self._started = asyncio.Event()

    async def ready(self) -> StreamableHTTPSessionManager:
        if self._task is None or self._task.done():
            self._started.clear()
            self._task = asyncio.create_task(self._run(), name="mcp")
        await self._started.wait()
        assert self._manager is not None
        return self._manager

    async def _run(self) -> None:
        # Rebinding of names cannot borrow anything here: there are no cookies, and whoever has the token needs no trick.
        open_to_all = TransportSecuritySettings(enable_dns_rebinding_protection=False)
        self._server.streamable_http_app(stateless_http=True, json_response=True, transport_security=open_to_all)
        self._manager = self._server.session_manager
        async with self._manager.run():
            self._started.set()
            await asyncio.Event().wait()
