"""Records people's requests to control a run. The engine acts on a request when it reads the event, and confirms it with another event."""

from __future__ import annotations

from typing import Any

from django.db import transaction

from agents import orders
from agents.events import NewEvent
from agents.notes import MAX_NOTE, TO
from agents.payloads import ControlRequested, NoteAdded, PlanEdited
from agents.settings import Settings
from webapp.accounts.models import User
from webapp.runs.jobs import enqueue_run
from webapp.runs.models import Run
from webapp.runs.trace.append import append

ACTIONS = ("pause", "resume", "cancel", "raise-budget")
TAKES_UP = ("resume", "cancel")  # no orchestrator holds a paused run, so the run has to be queued for one


class NotTaken(ValueError):
    """Raised if a note or plan cannot be recorded. The message says what to do."""


def send_note(run: Run, text: str, to: str, *, by: User) -> None:
    """Record a note for an agent's next prompt; raises `NotTaken`."""
    text = text.replace("\r\n", "\n").strip()
    if to not in TO:
        raise NotTaken(f"a note goes to {', '.join(TO)}")
    if not text or len(text) > MAX_NOTE:
        raise NotTaken(f"a note has 1 to {MAX_NOTE} characters; this one has {len(text)}")
    try:
        orders.check(Settings.model_validate(run.settings), to, text)
    except orders.NotAnOrder as error:
        raise NotTaken(str(error)) from None
    append(run.pk, [NewEvent.of(NoteAdded(to=to, text=text, by=by.get_username()), agent="person")])


def edit_plan(run: Run, plan: dict[str, Any] | None, *, by: User, go_on: bool) -> None:
    """Replace the proposed plan with an edited one.

    `plan` has the format of `agents.plan_edits.edited_plan`; None keeps the proposed plan. If `go_on` is set, the run also resumes.
    """
    name = by.get_username()
    events = [NewEvent.of(PlanEdited.model_validate({**plan, "by": name}), agent="person")] if plan is not None else []
    if go_on:
        events.append(NewEvent.of(ControlRequested(action="resume", by=name), agent="person"))
    with transaction.atomic():
        append(run.pk, events)
        if go_on:
            enqueue_run(run.pk)


def request_control(run: Run, action: str, *, by: User, **arguments: Any) -> None:
    """`action` is one of ACTIONS. `raise-budget` takes `limits`, a dict keyed by unit."""
    if action not in ACTIONS:
        raise ValueError(f"the action is one of {', '.join(ACTIONS)}")
    with transaction.atomic():
        append(run.pk, [NewEvent.of(ControlRequested(action=action, by=by.get_username(), **arguments), agent="person")])
        if action in TAKES_UP:
            enqueue_run(run.pk)
