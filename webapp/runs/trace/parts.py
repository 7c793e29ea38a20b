"""Hooks for other apps that derive their own rows from a run's events.

Each app registers its part when Django starts (`AppConfig.ready`), so `webapp.runs` depends on none of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from agents.events import Event, Projection
from webapp.runs.models import Run


def _nothing(run: Run) -> None:
    """Does nothing."""


@dataclass(frozen=True)
class Part:
    """The handlers of one app, which run in the transaction that writes the events."""

    rows: Projection[Run, Event] = field(default_factory=Projection)  # a handler per kind of event, applied after the run's own rows are written
    forget: Callable[[Run], None] = _nothing  # called before a trace is replayed
    restore: Callable[[Run], None] = _nothing  # called after a trace has been replayed


PARTS: list[Part] = []


def register(part: Part) -> None:
    if part not in PARTS:
        PARTS.append(part)
