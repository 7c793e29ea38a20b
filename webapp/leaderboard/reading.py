"""The one ranking query: which rows count for this viewer and selection. The page, its plots, the exports and the API all come through here."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import psycopg
from django.db import connection

from webapp.accounts.access import Asker, teams_with
from webapp.leaderboard.filters import Filters

COLUMNS = (
    "entry_id, subject_id, id, team_id, confirmed, program_class, flagged, eager, eager_low, eager_high, best, best_low, best_high,"
    " compile, autotune, graph, dollars, tokens, seconds, faster_after"
)
INSIDE = "team_id = ANY(%(teams)s) AND team_runs IS NOT NULL"
OUTSIDE = "team_id <> ALL(%(teams)s) AND public_runs IS NOT NULL"
PUBLISHED = "public_runs IS NOT NULL"
# Left out of the ranking by a verdict, and visible: members see their team's, everybody what is published.
JUDGED = "verdict IN ('questioned', 'hack', 'retracted')"
SEEN = "(visibility = 'everyone' OR (visibility = 'team' AND team_id = ANY(%(teams)s)) OR maker_id = %(person)s)"


class Counted(NamedTuple):
    """A row that counts: `COLUMNS`, and of how many runs it is the median."""

    entry: int
    subject: int
    result: int
    team: uuid.UUID
    confirmed: bool
    program_class: str
    flagged: bool
    eager: float | None
    eager_low: float | None
    eager_high: float | None
    best: float | None
    best_low: float | None
    best_high: float | None
    compile: float | None
    autotune: float | None
    graph: float | None
    dollars: float
    tokens: int
    seconds: float | None
    faster_after: float | None
    runs: int

    @property
    def score(self) -> float:
        """By which the median was chosen."""
        return (self.eager or 0.0) if self.confirmed else 0.0


@dataclass(frozen=True)
class Scope:
    """Whose results are read: those of the viewer's teams, and those that other teams publish."""

    teams: list[uuid.UUID]
    person: int | None
    whose: str = ""

    @classmethod
    def of(cls, asker: Asker, filters: Filters) -> Scope:
        user = getattr(asker, "user", asker)
        return cls(list(teams_with(asker).values_list("pk", flat=True)), user.pk, filters.whose)

    @property
    def parts(self) -> list[tuple[str, str]]:
        """(column with the number of runs, condition) of each query that is needed."""
        if self.whose == "published":
            return [("public_runs", PUBLISHED)]
        inside, outside = ("team_runs", INSIDE), ("public_runs", OUTSIDE)
        return [inside] if self.whose == "ours" else [inside, outside]

    @property
    def given(self) -> dict:
        return {"teams": self.teams, "person": self.person}


def selections(scope: Scope) -> list[tuple[int, int, int]]:
    """(setup, entry, rows that count): what there is to choose from."""
    each = [f"SELECT setup_id, entry_id, count(*) FROM leaderboard_result WHERE {condition} GROUP BY 1, 2" for _, condition in scope.parts]
    found: dict[tuple[int, int], int] = {}
    for setup, entry, rows in _all(" UNION ALL ".join(each), scope.given):
        found[setup, entry] = found.get((setup, entry), 0) + rows
    return [(setup, entry, rows) for (setup, entry), rows in found.items()]


def counted(scope: Scope, setup: int, entries: Sequence[int] | None = None, subjects: Sequence[int] | None = None) -> list[Counted]:
    """The rows of one setup, one for each entry and task. None: all of them."""
    narrowed, given = _narrowed(setup, entries, subjects)
    each = [f"SELECT {COLUMNS}, {runs} FROM leaderboard_result WHERE {narrowed} AND {condition}" for runs, condition in scope.parts]
    rows = [Counted(*row) for row in _all(" UNION ALL ".join(each), scope.given | given)]
    return _one_a_task(rows)


def left_out(scope: Scope, setup: int, entries: Sequence[int] | None = None, subjects: Sequence[int] | None = None) -> list[tuple[int, int, int]]:
    """(entry, subject, result) of what a verdict took out of the ranking."""
    narrowed, given = _narrowed(setup, entries, subjects)
    query = f"SELECT entry_id, subject_id, id FROM leaderboard_result WHERE {JUDGED} AND {narrowed} AND {SEEN}"
    if scope.whose == "ours":
        query += " AND team_id = ANY(%(teams)s)"
    elif scope.whose == "published":
        query += " AND visibility = 'everyone'"
    return _all(query, scope.given | given)


def task_names(results: Sequence[int]) -> dict[int, str]:
    """By subject, as the named results' own teams call the task."""
    query = "SELECT r.subject_id, t.name FROM leaderboard_result r JOIN tasks_task t ON t.id = r.task_id WHERE r.id = ANY(%(results)s)"
    return dict(_all(query, {"results": list(results)}))


def _narrowed(setup: int, entries: Sequence[int] | None, subjects: Sequence[int] | None) -> tuple[str, dict]:
    parts, given = ["setup_id = %(setup)s"], {"setup": setup, "entries": list(entries or []), "subjects": list(subjects or [])}
    if entries is not None:
        parts.append("entry_id = ANY(%(entries)s)")
    if subjects is not None:
        parts.append("subject_id = ANY(%(subjects)s)")
    return " AND ".join(parts), given


def _one_a_task(rows: list[Counted]) -> list[Counted]:
    """Where several teams have the same entry on the same task, the median of their medians."""
    groups: dict[tuple[int, int], list[Counted]] = {}
    for row in rows:
        groups.setdefault((row.entry, row.subject), []).append(row)
    if len(groups) == len(rows):
        return rows
    found = []
    for group in groups.values():
        group.sort(key=lambda row: (row.score, row.result))
        found.append(group[(len(group) - 1) // 2]._replace(runs=sum(row.runs for row in group)))
    return found


def _all(query: str, given: dict) -> list[tuple]:
    """In binary: ten thousand rows of twenty figures are read in a third of the time that their text takes."""
    connection.ensure_connection()
    with psycopg.Cursor(connection.connection) as cursor:
        return cursor.execute(query, given, binary=True).fetchall()
