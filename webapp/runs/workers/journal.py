"""Keeps the engine's journal in Postgres."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import psycopg
from django.db import InterfaceError, OperationalError, transaction
from psycopg_pool import PoolTimeout

from agents.events import ArtefactRef, Event, NewEvent
from agents.ports import LeaseLost
from webapp.database import in_thread
from webapp.runs import artefacts
from webapp.runs.live.hub import hub
from webapp.runs.models import Run
from webapp.runs.trace.append import append
from webapp.runs.trace.reading import events_after

EVERYTHING = 1_000_000_000

Given = ParamSpec("Given")
Returned = TypeVar("Returned")


def stops_without_database(call: Callable[Given, Coroutine[Any, Any, Returned]]) -> Callable[Given, Coroutine[Any, Any, Returned]]:
    """Treat a lost database connection as a lost lease.

    The engine cannot know whether its last append was committed, so it must not write anything more. When the database is back, the run is resumed by
    replay.
    """

    @wraps(call)
    async def guarded(*arguments: Given.args, **named: Given.kwargs) -> Returned:
        try:
            return await call(*arguments, **named)
        except (OperationalError, InterfaceError, psycopg.OperationalError, PoolTimeout) as error:
            raise LeaseLost(f"the database went away: {str(error).strip()[:200]}") from error

    return guarded


class DatabaseJournal:
    """Implements `agents.ports.Journal` for one run, writing under the lease `epoch`."""

    def __init__(self, run: uuid.UUID, team: uuid.UUID, epoch: int):
        self.run, self.team, self.epoch = str(run), team, epoch

    @stops_without_database
    async def load(self) -> list[Event]:
        return await self.since(0)

    @stops_without_database
    async def append(self, events: Sequence[NewEvent]) -> list[Event]:
        return await in_thread(append)(self.run, events, epoch=self.epoch)

    @stops_without_database
    async def since(self, seq: int) -> list[Event]:
        rows = await in_thread(events_after)(uuid.UUID(self.run), seq, EVERYTHING)
        return [Event.model_validate(row) for row in rows]

    async def wakeups(self) -> AsyncIterator[None]:
        async with hub().follow(self.run) as follower:
            while True:
                await follower.woken()
                yield

    @stops_without_database
    async def put(self, data: bytes, media_type: str, name: str = "") -> ArtefactRef:
        return await in_thread(artefacts.put)(self.team, data, media_type, name)

    @stops_without_database
    async def get(self, sha: str) -> bytes:
        return await in_thread(artefacts.get)(self.team, sha)


def take_lease(run: uuid.UUID) -> Run | None:
    """Make this process the only writer of the run. Every earlier writer gets `LeaseLost`. Return None if the run has finished."""
    with transaction.atomic():
        taken = Run.objects.select_for_update(no_key=True, of=("self",)).select_related("task", "team").filter(pk=run).first()
        if taken is None or taken.state == "finished":
            return None
        taken.lease_epoch += 1
        taken.save(update_fields=["lease_epoch"])
        return taken
