"""Reading a run's trace: the same events, in the same form, over HTTP, over a websocket, and on disk."""

from __future__ import annotations

import json
import uuid
from typing import Any

from django.db import connection

from webapp.runs.models import Run

# One event as JSON text. `payload` is of type json, so its own text goes through unchanged.
EVENT_JSON = """json_build_object('v', v, 'run', run_id, 'seq', seq, 'at', to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"'),
 'span', span, 'parent', parent, 'agent', agent, 'kind', kind, 'payload', payload)::text"""

SELECT_AFTER = f"SELECT seq, {EVENT_JSON} FROM runs_event WHERE run_id = %s AND seq > %s ORDER BY seq LIMIT %s"


# The same, but no more text than so many bytes, and at least one event: what a reader holds is bounded, however large events are.
SELECT_WITHIN = f"""SELECT seq, text FROM (
 SELECT seq, text, sum(octet_length(text)) OVER (ORDER BY seq) AS size, row_number() OVER (ORDER BY seq) AS nth
 FROM (SELECT seq, {EVENT_JSON} AS text FROM runs_event WHERE run_id = %s AND seq > %s ORDER BY seq LIMIT %s) following
) sized WHERE size <= %s OR nth = 1 ORDER BY seq"""


def events_after(run: Run | uuid.UUID, since: int, limit: int) -> list[dict[str, Any]]:
    """Events with `seq > since`, oldest first, as they go over the wire."""
    with connection.cursor() as cursor:
        cursor.execute(SELECT_AFTER, [run.pk if isinstance(run, Run) else run, since, limit])
        return [json.loads(text) for _, text in cursor.fetchall()]
