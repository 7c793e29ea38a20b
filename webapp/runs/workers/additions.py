"""Additions by other apps to the orchestrator process.

Each app registers its additions when Django starts (`AppConfig.ready`), so `webapp.runs` depends on none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agents.llm.mailbox import MailboxStore
from agents.ports import Library
from webapp.runs.models import Run

if TYPE_CHECKING:
    from agents.llm.models import Models
    from agents.memory.inspirations import Inspirations, Split


@dataclass(frozen=True)
class Knowledge:
    """The sources that a run may query. The fields are arguments of `agents.run.Engine`."""

    library: Library | None = None
    inspirations: Inspirations | None = None
    split: Split | None = None


def _nothing(run: Run) -> Knowledge:
    return Knowledge()


@dataclass
class Ports:
    """The engine's ports that an app implements. Each has one implementation, and the engine works without it."""

    mailbox: Callable[[], MailboxStore | None] = lambda: None
    knowledge: Callable[[Run], Knowledge] = _nothing  # may query the database


PORTS = Ports()
BESIDE: list[Callable[[Models], Coroutine[Any, Any, None]]] = []  # started with the orchestrator and cancelled when it stops
RESCUES: list[Callable[[], int]] = []  # called in each rescue round; each takes up lost jobs again and returns their number
