"""A cache that all web processes share, stored as a table of JSON values. It holds rate limits and used one-time codes.

Django's own database cache unpickles what it reads. Other processes also write to this database, so this cache stores only JSON, which cannot execute
code.
"""

from __future__ import annotations

import json
import random
from typing import Any

from django.core.cache.backends.base import DEFAULT_TIMEOUT, BaseCache
from django.db import connection

TABLE = "accounts_cachedvalue"
SWEEP = 0.01  # fraction of writes that also delete expired values

GET = f"SELECT value::text FROM {TABLE} WHERE key = %s AND (expires_at IS NULL OR expires_at > clock_timestamp())"
PUT = f"""
INSERT INTO {TABLE} AS kept (key, value, expires_at) VALUES (%s, %s::jsonb, clock_timestamp() + make_interval(secs => %s))
ON CONFLICT (key) DO UPDATE SET value = EXCLUDED.value, expires_at = EXCLUDED.expires_at
"""
ADD = PUT + " WHERE kept.expires_at <= clock_timestamp()"  # keeps unexpired values; atomic, so only one of several concurrent writers succeeds


class SharedCache(BaseCache):
    """The cache backend. It ignores `LOCATION` and keeps values with `timeout=None` forever."""

    def __init__(self, location: str, params: dict[str, Any]):
        super().__init__(params)

    def add(self, key: str, value: Any, timeout: float | None = DEFAULT_TIMEOUT, version: int | None = None) -> bool:
        return self._write(ADD, key, value, timeout, version)

    def set(self, key: str, value: Any, timeout: float | None = DEFAULT_TIMEOUT, version: int | None = None) -> None:
        self._write(PUT, key, value, timeout, version)

    def get(self, key: str, default: Any = None, version: int | None = None) -> Any:
        with connection.cursor() as cursor:
            cursor.execute(GET, [self.make_key(key, version=version)])
            row = cursor.fetchone()
        return json.loads(row[0]) if row else default

    def touch(self, key: str, timeout: float | None = DEFAULT_TIMEOUT, version: int | None = None) -> bool:
        statement = f"UPDATE {TABLE} SET expires_at = clock_timestamp() + make_interval(secs => %s) WHERE key = %s AND expires_at > clock_timestamp()"
        return self._execute(statement, [self._seconds(timeout), self.make_key(key, version=version)]) == 1

    def delete(self, key: str, version: int | None = None) -> bool:
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
        """Returns the timeout in seconds. None becomes a null `expires_at` in SQL, which means forever."""
        return self.default_timeout if timeout is DEFAULT_TIMEOUT else timeout

    @staticmethod
    def _execute(statement: str, arguments: list[Any]) -> int:
        with connection.cursor() as cursor:
            cursor.execute(statement, arguments)
            return int(cursor.rowcount)
