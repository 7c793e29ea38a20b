"""Runs to learn from: trace folders whose owner says that they agree, and those of a database whose team did, on record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from agents import sound
from agents.events import Event
from agents.journal import TRACE, TraceDamaged
from agents.rl.rows import RunTrace

# Entries of a team's audit log; the later one holds. Written by `manage.py training_consent`.
AGREED, WITHDRAWN = "training.agreed", "training.withdrawn"

CONSENT = """
SELECT DISTINCT ON (team_id) team_id, action, actor_name, at FROM accounts_auditentry
WHERE action IN (%s, %s) ORDER BY team_id, at DESC, id DESC
"""
RUNS = """
SELECT id FROM runs_run WHERE team_id = %s AND state = 'finished' AND archived_at IS NULL AND NOT imported ORDER BY finished_at, id
"""
EVENTS = "SELECT v, run_id::text, seq, at, span, parent, agent, kind, payload FROM runs_event WHERE run_id = %s ORDER BY seq"
VERDICTS = "SELECT number, verdict FROM runs_candidate WHERE run_id = %s AND verdict <> ''"
ARTEFACT = """
SELECT c.data FROM runs_artefactchunk c JOIN runs_artefact a ON a.id = c.artefact_id WHERE a.team_id = %s AND a.sha = %s ORDER BY c.index
"""


class NoSource(ValueError):
    """With a sentence about what to do."""


def folders(given: Sequence[Path], agreed_by: str) -> Iterator[tuple[str, RunTrace | str]]:
    """The traces below folders by path; a text instead of a trace says why it cannot be used. Raises `NoSource`."""
    if not agreed_by.strip():
        raise NoSource("say with --agreed-by who agreed that these runs are learned from: it stands in every row")
    for folder in given:
        traces = sorted(folder.rglob(TRACE)) if folder.is_dir() else []
        if not traces:
            raise NoSource(f"{folder} holds no {TRACE}")
        for path in traces:
            try:
                events, stored = sound.read(path.parent)
                yield str(path.parent), RunTrace(events, stored.__getitem__, f"stated by {agreed_by}", "trace")
            except TraceDamaged as error:
                yield str(path.parent), str(error)


def database(address: str) -> Iterator[tuple[str, RunTrace | str]]:
    """Finished runs of the teams that agreed. Runs that were imported are left out: another house's team did them. Raises `NoSource`."""
    import psycopg

    try:
        connection = psycopg.connect(address, autocommit=False, options="-c default_transaction_read_only=on")
    except psycopg.Error as error:
        raise NoSource(f"the database does not answer: {str(error).splitlines()[0] if str(error) else type(error).__name__}") from None
    with connection:
        try:
            agreeing = [row for row in connection.execute(CONSENT, [AGREED, WITHDRAWN]).fetchall() if row[1] == AGREED]
        except psycopg.errors.UndefinedTable:
            raise NoSource("this is not a database of Stitchwork: it has no audit log") from None
        if not agreeing:
            raise NoSource("no team agreed that its runs are learned from: an owner does with `manage.py training_consent TEAM --agree`")
        for team, _, by, at in agreeing:
            for (run,) in connection.execute(RUNS, [team]).fetchall():
                yield f"run {run}", _run(connection, team, run, f"the team's owner {by}, {at:%Y-%m-%d}")


def _run(connection: Any, team: Any, run: Any, agreement: str) -> RunTrace:
    names = ("v", "run", "seq", "at", "span", "parent", "agent", "kind", "payload")
    rows: list[Mapping[str, Any]] = [dict(zip(names, row, strict=True)) for row in connection.execute(EVENTS, [run])]
    events = [Event.model_validate({**row, "at": row["at"].isoformat()}) for row in rows]
    verdicts = dict(connection.execute(VERDICTS, [run]).fetchall())

    def artefact(sha: str) -> bytes:
        chunks = connection.execute(ARTEFACT, [team, sha]).fetchall()
        if not chunks:
            raise KeyError(sha)
        return b"".join(bytes(data) for (data,) in chunks)

    return RunTrace(events, artefact, agreement, "database", verdicts)
