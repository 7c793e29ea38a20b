"""A cache that all web processes share: a table of JSON values. Rate limits and used one-time codes live in it.

Django's own database cache unpickles what it reads; other processes write to this database, so nothing here is executed.
"""

from __future__ import annotations

import json
import random
from typing import Any

from django.core.cache.backends.base import DEFAULT_TIMEOUT, BaseCache
from django.db import connection

TABLE = "accounts_cachedvalue"
SWEEP = 0.01  # share of the writes that also delete what has expired

GET = f"SELECT value::text FROM {TABLE} WHERE key = %s AND (expires_at IS NULL OR expires_at > clock_timestamp())"
PUT = f"""
INSERT INTO {TABLE} AS kept (key, value, expires_at) VALUES (%s, %s::jsonb, clock_timestamp() + make_interval(secs => %s))
ON CONFLICT (key) DO UPDATE SET value = EXCLUDED.value, expires_at = EXCLUDED.expires_at
"""
ADD = PUT + " WHERE kept.expires_at <= clock_timestamp()"  # a value that still holds stays; one statement, so one of many writers wins


class SharedCache(BaseCache):
    """`LOCATION` is not used; `timeout=None` keeps a value for ever."""

    def __init__(self, location: str, params: dict[str, Any]):
        super().__init__(params)

    def add(self, key, value, timeout=DEFAULT_TIMEOUT, version=None) -> bool:
        return self._write(ADD, key, value, timeout, version)

    def set(self, key, value, timeout=DEFAULT_TIMEOUT, version=None) -> None:
        self._write(PUT, key, value, timeout, version)

    def get(self, key, default=None, version=None) -> Any:
        with connection.cursor() as cursor:
            cursor.execute(GET, [self.make_key(key, version=version)])
            row = cursor.fetchone()
        return json.loads(row[0]) if row else default

    def touch(self, key, timeout=DEFAULT_TIMEOUT, version=None) -> bool:
        statement = f"UPDATE {TABLE} SET expires_at = clock_timestamp() + make_interval(secs => %s) WHERE key = %s AND expires_at > clock_timestamp()"
        return self._execute(statement, [self._seconds(timeout), self.make_key(key, version=version)]) == 1

    def delete(self, key, version=None) -> bool:
        return self._execute(f"DELETE FROM {TABLE} WHERE key = %s", [self.make_key(key, version=version)]) == 1

    def clear(self) -> None:
        self._execute(f"DELETE FROM {TABLE}", [])

    def _write(self, statement: str, key: str, value: Any, timeout: float | None, version: int | None) -> bool:
        text = json.dumps(value, allow_nan=False)
        written = self._execute(statement, [self.make_key(key, version=version), text, self._seconds(timeout)])
        if random.random() < SWEEP:
            self._execute(f"DELETE FROM {TABLE} WHERE expires_at <= clock_timestamp()", [])
        return written == 1

    def _seconds(self, timeout: float | None) -> float | None:
        """None, which SQL carries on to an `expires_at` of null, is for ever."""
        return self.default_timeout if timeout is DEFAULT_TIMEOUT else timeout

    @staticmethod
    def _execute(statement: str, arguments: list[Any]) -> int:
        with connection.cursor() as cursor:
            cursor.execute(statement, arguments)
            return cursor.rowcount
