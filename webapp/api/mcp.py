"""The MCP tools for coding agents over HTTP, at /mcp. They are the same tools that `stitchwork mcp` serves over stdio, but need no installation.

The endpoint is stateless and sends one response per request, so any web process can serve any request. The tools call the API in this process with
the caller's own token.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Awaitable, Callable
from typing import Any, cast

import httpx
from mcp.server.mcpserver import Context
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings

from stitchwork.asking import AsyncApi
from stitchwork.tools import build_server
from webapp.accounts import tokens
from webapp.api.calls.problems import CallRefused
from webapp.api.stream import header_of, refuse, unauthorised
from webapp.database import in_thread

Message = dict[str, Any]
Application = Callable[..., Awaitable[None]]  # takes scope, receive and send, whose message types differ between Django and httpx

log = logging.getLogger(__name__)


def mcp_application(pages: Application) -> Application:
    """Return the MCP application; `pages` answers the API calls."""
    managers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Manager] = weakref.WeakKeyDictionary()

    async def serve(scope: Message, receive: Any, send: Any) -> None:
        try:
            header = header_of(scope, b"authorization")
            if not header or await in_thread(tokens.authenticate)(header) is None:
                raise unauthorised(header)
        except CallRefused as refused:
            await refuse(send, refused.problem, refused.headers)
            return
        manager = managers.setdefault(asyncio.get_running_loop(), Manager(pages))
        await (await manager.ready()).handle_request(scope, receive, send)

    return serve


class Manager:
    """Runs the SDK's session manager in a separate task, because Daphne does not notify applications when it starts or stops."""

    def __init__(self, pages: Application):
        def connect(ctx: Context) -> AsyncApi:
            headers = ctx.headers or {}
            transport = httpx.ASGITransport(app=cast(Any, pages), raise_app_exceptions=False)
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
        # DNS rebinding is not a threat here, because there are no cookies and an attacker who has the token does not need it.
        open_to_all = TransportSecuritySettings(enable_dns_rebinding_protection=False)
        self._server.streamable_http_app(stateless_http=True, json_response=True, transport_security=open_to_all)
        self._manager = self._server.session_manager
        async with self._manager.run():
            self._started.set()
            await asyncio.Event().wait()
