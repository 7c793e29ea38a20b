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


# The same, event by event until there is so much text: what a reader holds is bounded, however large events are, and nothing is made for nobody.
SELECT_WITHIN = f"""WITH RECURSIVE walk AS (
 (SELECT seq, {EVENT_JSON} AS text, 0::bigint AS before, 1 AS nth FROM runs_event WHERE run_id = %(run)s AND seq > %(since)s ORDER BY seq LIMIT 1)
 UNION ALL
 SELECT next.seq, next.text, walk.before + octet_length(walk.text), walk.nth + 1
 FROM walk, LATERAL (
  SELECT seq, {EVENT_JSON} AS text FROM runs_event WHERE run_id = %(run)s AND seq > walk.seq ORDER BY seq LIMIT 1
 ) next WHERE walk.nth < %(limit)s AND walk.before + octet_length(walk.text) < %(most)s
) SELECT seq, text FROM walk ORDER BY seq"""


def events_after(run: Run | uuid.UUID, since: int, limit: int) -> list[dict[str, Any]]:
    """Events with `seq > since`, oldest first, as they go over the wire."""
    with connection.cursor() as cursor:
        cursor.execute(SELECT_AFTER, [run.pk if isinstance(run, Run) else run, since, limit])
        return [json.loads(text) for _, text in cursor.fetchall()]
