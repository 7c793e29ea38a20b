"""Numbers the changes to a run's review, and wakes the pages of people who are viewing it."""

from __future__ import annotations

import uuid

from django.db import connection

from webapp.runs.models import Run
from webapp.runs.trace.reading import CHANNEL

# The row lock is held until the change is committed, so numbers become visible in order and a reader's cursor misses nothing.
NEXT = """
INSERT INTO review_desk (run_id, seq) VALUES (%s, 1) ON CONFLICT (run_id) DO UPDATE SET seq = review_desk.seq + 1 RETURNING seq
"""


def next_seq(run: Run | uuid.UUID) -> int:
    """Returns the number for the next change to this run's review. Call this in the same transaction as the change. The run's followers are woken
    when it commits."""
    pk = run.pk if isinstance(run, Run) else run
    with connection.cursor() as cursor:
        cursor.execute(NEXT, [pk])
        (seq,) = cursor.fetchone()
    wake(run_key(pk), seq)
    return int(seq)


def wake(key: str, seq: int = 0) -> None:
    """Sends a hint when the transaction commits, through the listener that live pages already use (webapp/runs/live/hub.py)."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_notify(%s, %s)", [CHANNEL, f"{key}:{seq}"])


def run_key(run: uuid.UUID | str) -> str:
    """Returns the hub key for followers of a run's review."""
    return f"review-{run}"


def person_key(user_id: int) -> str:
    """Returns the hub key for one person's pages, which show the number of unread notifications."""
    return f"person-{user_id}"
