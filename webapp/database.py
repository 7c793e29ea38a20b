"""Access to the database from asynchronous code."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

import psycopg
from channels.db import database_sync_to_async
from django.db import connections

P = ParamSpec("P")
R = TypeVar("R")


def in_thread(function: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Wraps a function for use in asynchronous code. It runs in a thread with a separate database connection, which then returns to the pool."""
    wrapped: Callable[P, Coroutine[Any, Any, R]] = database_sync_to_async(function)
    return wrapped


def connection_parameters() -> dict[str, Any]:
    """Returns the parameters for a psycopg connection to the same database, separate from Django's."""
    parameters = dict(connections["default"].get_connection_params())
    for name in ("cursor_factory", "context", "pool"):
        parameters.pop(name, None)
    return parameters


async def listening(channel: str) -> psycopg.AsyncConnection:
    """Returns a connection in autocommit mode that listens on `channel`."""
    connection = await psycopg.AsyncConnection.connect(**connection_parameters() | {"autocommit": True, "connect_timeout": 5})
    await connection.execute(psycopg.sql.SQL("LISTEN {}").format(psycopg.sql.Identifier(channel)))
    return connection
