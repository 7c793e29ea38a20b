"""What people ask of a run. The engine obeys when it reads the event, and says so by an event of its own."""

from __future__ import annotations

from typing import Any

from agents.events import NewEvent
from webapp.accounts.models import User
from webapp.runs.append import append
from webapp.runs.models import Run

ACTIONS = ("pause", "resume", "cancel", "raise-budget")


def request_control(run: Run, action: str, *, by: User, **arguments: Any) -> None:
    """`action` is one of ACTIONS; `raise-budget` takes `limits`, a dict by unit."""
    if action not in ACTIONS:
        raise ValueError(f"the action is one of {', '.join(ACTIONS)}")
    append(run.pk, [NewEvent(kind="control.requested", agent="person", payload={"action": action, "by": by.get_username(), **arguments})])
