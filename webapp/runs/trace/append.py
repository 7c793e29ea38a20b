"""Appends to a run's trace. Events, projections and the wake-up share one transaction."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from typing import Any

from django.db import DatabaseError, connection, transaction

from agents.events import EVENT_VERSION, UNSTORABLE, Event, NewEvent, storable
from agents.payloads import RunFinished, RunPaused
from agents.ports import LeaseLost
from webapp.runs.signals import run_ended, run_paused
from webapp.runs.trace.projection import project
from webapp.runs.trace.reading import stamp


class PayloadTooLarge(ValueError):
    """Raised if a payload exceeds 16 KB and must be stored as an artefact instead."""


class NoSuchRun(LookupError):
    """Raised if the run does not exist or has been deleted."""


ERRORS = {"SW001": LeaseLost, "SW002": PayloadTooLarge, "SW404": NoSuchRun}  # SQLSTATEs of `stitchwork_append`


def append(run: uuid.UUID | str, events: Sequence[NewEvent], *, epoch: int | None = None) -> list[Event]:
    """Append the events atomically and return them as they were written.

    `epoch` is the orchestrator's lease. It is None for writers that need no lease, such as the web app's controls and a verifier with a claim. Raises
    `LeaseLost`, `PayloadTooLarge`, `NoSuchRun`.
    """
    if not events:
        return []
    rows = [{"span": e.span, "parent": e.parent, "agent": e.agent, "kind": e.kind, "payload": e.payload} for e in events]
    text = written_out(rows)
    if "\\u0000" in text or UNSTORABLE.search(text):
        text = written_out(storable(rows))
    try:
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute("SELECT seq, at FROM stitchwork_append(%s, %s, %s::json)", [str(run), epoch, text])
                stamps = cursor.fetchall()
            written = [
                Event(
                    v=EVENT_VERSION, run=str(run), seq=seq, at=stamp(at), span=e.span, parent=e.parent, agent=e.agent, kind=e.kind,
                    payload=row["payload"],
                )
                for (seq, at), e, row in zip(stamps, events, json.loads(text), strict=True)
            ]  # fmt: skip
            project(run, written)
            for event in written:
                if (paused := event.of(RunPaused)) and paused.kind_:
                    run_paused.send(sender=None, run=run, reason=paused.reason)
            if any(event.kind == RunFinished.kind for event in written):
                run_ended.send(sender=None, run=run)
    except DatabaseError as error:
        named = ERRORS.get(getattr(error.__cause__, "sqlstate", None) or "")
        if named is None:
            raise
        raise named(str(error.__cause__).partition("\n")[0]) from None
    return written


def written_out(rows: list[dict[str, Any]]) -> str:
    return json.dumps(rows, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
