"""Checks who may follow a run, with a single statement for everybody who has it open."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from webapp.runs.live.hub import hub
from webapp.sql import statements

ALLOWED = statements(__file__)["allowed"]


class Person(NamedTuple):
    """A viewer of a run with their session: a signed-in person, or a guest with a share link (webapp/review/guests.py)."""

    user: int | None
    share: str | None
    session: str | None


async def allowed(run: str, people: Collection[Person]) -> set[Person]:
    """Return the members of `people` who may currently see the run."""
    asked = list(people)
    users, shares, sessions = ([person[at] for person in asked] for at in range(3))
    rows = await hub().rows(ALLOWED, {"run": run, "users": users, "shares": shares, "sessions": sessions})
    return {asked[number - 1] for (number,) in rows}
