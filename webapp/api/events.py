"""A run's events by cursor; `stream.py` streams the same events."""

from __future__ import annotations

import uuid
from typing import Annotated, Any

from django.http import HttpResponse
from ninja import Query, Router, Schema
from pydantic import Field

from agents.events import Event, State
from webapp.accounts.access import grant_of
from webapp.accounts.signed_in import Request
from webapp.api.calls.caller import needs
from webapp.api.calls.fields import Seq
from webapp.api.calls.problems import refusals
from webapp.api.run_schemas import Asked
from webapp.runs.access import run_for
from webapp.runs.models import Run
from webapp.runs.trace.reading import events_after

router = Router(tags=["events"])
MOST = 1000


class EventsAsked(Asked):
    after: Seq = Field(default=0, description="Events with a larger seq; 0: from the first.")
    limit: Annotated[int, Field(ge=1, le=MOST)] = 500


class Events(Schema):
    events: list[Event] = Field(description="Oldest first, without gaps; docs/reference/events.md says what each kind carries.")
    last: int = Field(description="The cursor after these: `after` of the next call.")
    head: int = Field(description="Seq of the run's last event: more follows where `last` is smaller.")
    state: State
    done: bool = Field(description="The run has ended and these are the last of its events.")


def readable_run(request: Request, run_id: uuid.UUID) -> Run:
    """Return the run if the caller may read its events. A token whose only scope is "verify" can follow only verifications."""
    run, _ = run_for(request, run_id)
    grant = grant_of(request)
    if grant is not None and not (not run.searches and grant.allows("verify")):
        needs(request, "read")
    return run


@router.get(
    "/{run_id}/events",
    response={200: Events, **refusals(401, 403, 404, 422, 429)},
    operation_id="list_events",
    summary="Read events",
)
def list_events(request: Request, response: HttpResponse, run_id: uuid.UUID, asked: Query[EventsAsked]) -> Any:
    """Returns the run's trace: everything that happened, as data. Repeat the call with `after` set to `last` until `done` is true, or follow the
    stream."""
    run = readable_run(request, run_id)
    events = events_after(run, asked.after, asked.limit)
    last = events[-1]["seq"] if events else asked.after
    head = max(run.last_seq, last if events else 0)
    response["Cache-Control"] = "no-store"
    return {"events": events, "last": last, "head": head, "state": run.state, "done": run.state == "finished" and last >= head}
