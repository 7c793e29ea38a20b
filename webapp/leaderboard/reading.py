"""The single ranking query, which reads the rows that count for a viewer and a selection. The page, its plots, the exports and the API all use it."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import psycopg
from django.db import connection

from webapp.accounts.access import Asker, teams_with, user_of
from webapp.leaderboard.arrays import Columns, copied, select
from webapp.leaderboard.filters import Filters
from webapp.leaderboard.shown.opening import opened_teams, signed_in

INSIDE = "team_id = ANY(%(teams)s) AND team_runs IS NOT NULL"
OUTSIDE = "team_id <> ALL(%(teams)s) AND public_runs IS NOT NULL"
PUBLISHED = "public_runs IS NOT NULL"
# Results that a verdict excluded from the ranking and that the viewer may see. Members see their team's results, and everybody sees published ones.
JUDGED = "verdict IN ('questioned', 'hack', 'retracted')"
SEEN = "(visibility = 'everyone' OR (team_id = ANY(%(teams)s) AND (visibility = 'team' OR maker_id = %(person)s)))"


@dataclass(frozen=True)
class Scope:
    """The teams whose results are read: the viewer's teams and, for published results, other teams too."""

    teams: list[uuid.UUID]
    person: int | None
    whose: str = ""
    opened: list[uuid.UUID] | None = None  # for people without an account: teams whose published results are open to everybody

    @classmethod
    def of(cls, asker: Asker, filters: Filters) -> Scope:
        if not signed_in(asker):
            return cls([], None, "published", list(opened_teams()))
        return cls(list(teams_with(asker).values_list("pk", flat=True)), user_of(asker).pk, filters.whose)

    @property
    def parts(self) -> list[tuple[str, str]]:
        """Return a pair (column with the number of runs, condition) for each query to run."""
        if self.whose == "published":
            return [("public_runs", f"{PUBLISHED} AND {self.among}")]
        inside, outside = ("team_runs", INSIDE), ("public_runs", OUTSIDE)
        return [inside] if self.whose == "ours" else [inside, outside]

    @property
    def among(self) -> str:
        """Return the condition that restricts published results by team."""
        return "TRUE" if self.opened is None else "team_id = ANY(%(opened)s)"

    @property
    def given(self) -> dict[str, Any]:
        return {"teams": self.teams, "person": self.person, "opened": self.opened or []}


def selections(scope: Scope) -> list[tuple[int, int, int]]:
    """Return the available choices as tuples (setup, entry, number of rows that count)."""
    each = [f"SELECT setup_id, entry_id, count(*) FROM leaderboard_result WHERE {condition} GROUP BY 1, 2" for _, condition in scope.parts]
    found: dict[tuple[int, int], int] = {}
    for setup, entry, rows in _all(" UNION ALL ".join(each), scope.given):
        found[setup, entry] = found.get((setup, entry), 0) + rows
    return [(setup, entry, rows) for (setup, entry), rows in found.items()]


def counted(scope: Scope, setup: int, entries: Sequence[int] | None = None, subjects: Sequence[int] | None = None) -> Columns:
    """Return the rows of one setup, one row per entry and task. A filter of None does not restrict the rows."""
    narrowed, given = _narrowed(setup, entries, subjects)
    each = [select(runs, f"{narrowed} AND {condition}") for runs, condition in scope.parts]
    return _one_a_task(copied(" UNION ALL ".join(each), scope.given | given))


def left_out(scope: Scope, setup: int, entries: Sequence[int] | None = None, subjects: Sequence[int] | None = None) -> list[tuple[int, int, int]]:
    """Return (entry, subject, result) for each result that a verdict excluded from the ranking."""
    narrowed, given = _narrowed(setup, entries, subjects)
    query = f"SELECT entry_id, subject_id, id FROM leaderboard_result WHERE {JUDGED} AND {narrowed} AND {SEEN}"
    if scope.whose == "ours":
        query += " AND team_id = ANY(%(teams)s)"
    elif scope.whose == "published":
        query += f" AND visibility = 'everyone' AND {scope.among}"
    return _all(query, scope.given | given)


def task_names(results: Sequence[int]) -> dict[int, str]:
    """Return task names keyed by subject, as given by the teams that own these results."""
    query = "SELECT r.subject_id, t.name FROM leaderboard_result r JOIN tasks_task t ON t.id = r.task_id WHERE r.id = ANY(%(results)s)"
    return dict(_all(query, {"results": list(results)}))


def _narrowed(setup: int, entries: Sequence[int] | None, subjects: Sequence[int] | None) -> tuple[str, dict[str, Any]]:
    parts, given = ["setup_id = %(setup)s"], {"setup": setup, "entries": list(entries or []), "subjects": list(subjects or [])}
    if entries is not None:
        parts.append("entry_id = ANY(%(entries)s)")
    if subjects is not None:
        parts.append("subject_id = ANY(%(subjects)s)")
    return " AND ".join(parts), given


def _one_a_task(rows: Columns) -> Columns:
    """Merge rows of the same entry and task.

    If several teams have such rows, take the median of their medians, using the measure by which each of them was selected (counting.py).
    """
    if not len(rows):
        return rows
    score = np.where(rows.confirmed, np.nan_to_num(rows.eager), 0.0)
    order = np.lexsort((rows.result, score, rows.subject, rows.entry))
    entry, subject = rows.entry[order], rows.subject[order]
    first = np.flatnonzero(np.r_[True, (entry[1:] != entry[:-1]) | (subject[1:] != subject[:-1])])
    size = np.diff(np.r_[first, len(order)])
    return rows.taken(order[first + (size - 1) // 2], runs=np.add.reduceat(rows.runs[order], first))


def _all(query: str, given: dict[str, Any]) -> list[tuple[Any, ...]]:
    connection.ensure_connection()
    with psycopg.Cursor(connection.connection) as cursor:
        return cursor.execute(query, given, binary=True).fetchall()
