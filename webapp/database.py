"""The database from asynchronous code."""

from __future__ import annotations

from typing import Any

import psycopg
from channels.db import database_sync_to_async
from django.db import connections

# Runs a synchronous function with its own database connection, returned to the pool afterwards.
in_thread = database_sync_to_async


def connection_parameters() -> dict[str, Any]:
    """For a psycopg connection beside Django's, to the same database."""
    parameters = dict(connections["default"].get_connection_params())
    for name in ("cursor_factory", "context", "pool"):
        parameters.pop(name, None)
    return parameters


async def listening(channel: str) -> psycopg.AsyncConnection:
    """A connection in autocommit mode that listens to `channel`."""
    connection = await psycopg.AsyncConnection.connect(**connection_parameters() | {"autocommit": True, "connect_timeout": 5})
    await connection.execute(psycopg.sql.SQL("LISTEN {}").format(psycopg.sql.Identifier(channel)))
    return connection
