"""The sequence of a run's review, and the wake-ups of those who look at it."""

from __future__ import annotations

import uuid

from django.db import connection

from webapp.runs.models import Run
from webapp.runs.trace.reading import CHANNEL

# The row's lock is held until the change is committed: numbers become visible in their order, and a reader's cursor skips nothing.
NEXT = """
INSERT INTO review_desk (run_id, seq) VALUES (%s, 1) ON CONFLICT (run_id) DO UPDATE SET seq = review_desk.seq + 1 RETURNING seq
"""


def next_seq(run: Run | uuid.UUID) -> int:
    """The number of a change to this run's review; call it in the change's transaction. Who follows the run is woken when it commits."""
    pk = run.pk if isinstance(run, Run) else run
    with connection.cursor() as cursor:
        cursor.execute(NEXT, [pk])
        (seq,) = cursor.fetchone()
    wake(run_key(pk), seq)
    return int(seq)


def wake(key: str, seq: int = 0) -> None:
    """A hint through the listener that the live pages have anyway (webapp/runs/live/hub.py); it is sent when the transaction commits."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_notify(%s, %s)", [CHANNEL, f"{key}:{seq}"])


def run_key(run: uuid.UUID | str) -> str:
    """What the hub's followers of a run's review follow."""
    return f"review-{run}"


def person_key(user_id: int) -> str:
    """What the pages of one person follow, for the count of their notifications."""
    return f"person-{user_id}"
