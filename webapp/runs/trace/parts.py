"""What other apps keep of a run's events. Each registers its part when Django starts (`AppConfig.ready`): `webapp.runs` knows none of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from agents.events import Event, Projection
from webapp.runs.models import Run


def _nothing(run: Run) -> None:
    """Does nothing."""


@dataclass(frozen=True)
class Part:
    """What an app does with events, in the transaction that writes them."""

    rows: Projection[Run, Event] = field(default_factory=Projection)  # what each kind of event does, after the run's own rows
    forget: Callable[[Run], None] = _nothing  # before a trace is read anew
    restore: Callable[[Run], None] = _nothing  # after it was read anew


PARTS: list[Part] = []


def register(part: Part) -> None:
    if part not in PARTS:
        PARTS.append(part)
