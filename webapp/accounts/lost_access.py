"""Tells every web process that somebody may have lost a right: open sockets and streams ask again, at once."""

from __future__ import annotations

from django.db import connection

CHANNEL = "stitchwork_run"  # which every web process listens to anyway (webapp/runs/live/hub.py)
PAYLOAD = "access"


def access_changed() -> None:
    """Is heard when the transaction commits."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_notify(%s, %s)", [CHANNEL, PAYLOAD])
