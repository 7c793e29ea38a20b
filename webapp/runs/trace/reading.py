"""Reading a run's trace: the same events, in the same form, over HTTP, over a websocket, and on disk."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime
from typing import Any

from django.db import connection

from webapp.runs.models import Run
from webapp.sql import statements

CHANNEL = "stitchwork_run"  # where readers are woken, as in the SQL function that appends; the payload is "RUN:SEQ"
SQL = statements(__file__)
EVENT_JSON = SQL["event"]
SELECT_AFTER, SELECT_WITHIN = (SQL[name].replace("{event}", EVENT_JSON) for name in ("after", "within"))


def events_after(run: Run | uuid.UUID, since: int, limit: int) -> list[dict[str, Any]]:
    """Events with `seq > since`, oldest first, as they go over the wire."""
    with connection.cursor() as cursor:
        cursor.execute(SELECT_AFTER, [run.pk if isinstance(run, Run) else run, since, limit])
        return [json.loads(text) for _, text in cursor.fetchall()]


def stamp(at: datetime) -> str:
    """A time as it stands in a trace: UTC with microseconds."""
    return at.astimezone(UTC).isoformat(timespec="microseconds")
