"""Notifies all web processes that someone may have lost a right, so open sockets and streams recheck access rights immediately."""

from __future__ import annotations

from django.db import connection

CHANNEL = "stitchwork_run"  # every web process already listens to it (webapp/runs/live/hub.py)
PAYLOAD = "access"


def access_changed() -> None:
    """Sends the notice when the transaction commits."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_notify(%s, %s)", [CHANNEL, PAYLOAD])
