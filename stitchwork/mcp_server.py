"""`stitchwork mcp`: serves the tools over stdio, or over HTTP on this machine."""

from __future__ import annotations

from stitchwork.asking import AsyncApi
from stitchwork.login import Login
from stitchwork.tools import build_server


def serve(login: Login, port: int | None) -> None:
    """Serves until the client closes the connection or the user presses Ctrl-C. Only protocol messages are written to stdout."""
    server = build_server(lambda ctx: AsyncApi(login.url, f"Bearer {login.token}"), local=True)
    if port is None:
        server.run("stdio")
    else:
        server.run("streamable-http", host="127.0.0.1", port=port)
