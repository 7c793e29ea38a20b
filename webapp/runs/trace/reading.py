"""Reads a run's trace. The events have the same format over HTTP, over a websocket and on disk."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime
from typing import Any

from django.db import connection

from webapp.runs.models import Run
from webapp.sql import statements

CHANNEL = "stitchwork_run"  # the channel that wakes readers, also named in the SQL function that appends; the payload is "RUN:SEQ"
SQL = statements(__file__)
EVENT_JSON = SQL["event"]
SELECT_AFTER, SELECT_WITHIN = (SQL[name].replace("{event}", EVENT_JSON) for name in ("after", "within"))


def events_after(run: Run | uuid.UUID, since: int, limit: int) -> list[dict[str, Any]]:
    """Return the events with `seq > since`, oldest first, in wire format."""
    with connection.cursor() as cursor:
        cursor.execute(SELECT_AFTER, [run.pk if isinstance(run, Run) else run, since, limit])
        return [json.loads(text) for _, text in cursor.fetchall()]


def stamp(at: datetime) -> str:
    """Format a time as in a trace: in UTC with microseconds."""
    return at.astimezone(UTC).isoformat(timespec="microseconds")
