"""Stores traces as directories with `trace.jsonl` and `artefacts/SHA`, in the format of `python -m agents solve`. Import and export are lossless."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import DataError, IntegrityError, connection, transaction

from agents import sound
from agents.events import Event
from agents.forking import settings_by_fork
from agents.journal import PayloadTooLarge, TraceDamaged, encode, references, write_trace
from agents.payloads import RunStarted
from verifier.source import sha256
from webapp.accounts.models import Team, User
from webapp.runs import artefacts
from webapp.runs.models import Event as EventRow
from webapp.runs.models import Run
from webapp.runs.trace.projection import event_of, project
from webapp.runs.trace.reading import CHANNEL
from webapp.tasks.models import Task

INSERT = "INSERT INTO runs_event (run_id, seq, v, at, span, parent, agent, kind, payload) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s::json)"


class TraceRefused(ValueError):
    """Raised if a directory cannot become a run. The message says why."""


def import_trace(folder: Path, team: Team, user: User | None, title: str = "") -> Run:
    """Create a run from a trace directory and give it the trace's id. A trace that the team already has is not imported again."""
    try:
        events, stored = sound.read(folder)
        rows = [row_of(event) for event in events]
    except FileNotFoundError:
        raise TraceRefused(f"{folder} has no trace.jsonl") from None
    except (TraceDamaged, PayloadTooLarge, ValueError) as error:
        raise TraceRefused(f"{folder}: {error}") from None
    if not events or events[0].kind != RunStarted.kind:
        raise TraceRefused(f"{folder}: a trace begins with run.started")
    run_id = _run_id(folder, events)
    known = Run.objects.filter(pk=run_id).first()
    if known is not None:
        if known.team_id != team.pk:
            raise TraceRefused(f"{folder}: run {run_id} belongs to another team here")
        return known
    try:
        with sound.told("the events do not make a run that can be kept"):
            return _kept(folder, run_id, team, user, title, events, stored, rows)
    except TraceDamaged as error:
        raise TraceRefused(f"{folder}: {error}") from None
    except (DataError, IntegrityError) as error:
        raise TraceRefused(f"{folder}: a value of its events does not fit: {str(error).splitlines()[0]}") from None


def _kept(
    folder: Path,
    run_id: uuid.UUID,
    team: Team,
    user: User | None,
    title: str,
    events: list[Event],
    stored: dict[str, bytes],
    rows: list[tuple[Any, ...]],
) -> Run:
    named = references(events)
    if lacking := sorted(set(named) - set(stored)):
        raise TraceDamaged(f"{len(lacking)} artefacts that the events name are missing, the first is {lacking[0]}")
    with transaction.atomic():
        for sha, data in stored.items():
            ref = named.get(sha)
            artefacts.put(team.pk, data, ref.media_type if ref else "application/octet-stream", ref.name if ref else "")
        run = _create(run_id, team, user, title, events, stored)
        with connection.cursor() as cursor:
            cursor.executemany(INSERT, rows)
            cursor.execute("UPDATE runs_run SET last_seq = %s WHERE id = %s", [events[-1].seq, run.pk])
            cursor.execute("SELECT pg_notify(%s, %s)", [CHANNEL, f"{run.pk}:{events[-1].seq}"])
        project(run.pk, events)
        run.refresh_from_db()
    return run


def export_trace(run: Run, folder: Path) -> None:
    """Write the run into `folder`; raises `TraceRefused` if it already contains a trace."""
    events = [event_of(row) for row in EventRow.objects.filter(run=run).order_by("seq").iterator(chunk_size=1000)]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        write_trace(folder, events, _stored(run, sorted(references(events))))
    except FileExistsError as error:
        raise TraceRefused(str(error)) from None


def import_examples(user: User) -> list[str]:
    """Import examples/traces/* into the user's personal team. Return a sentence about each trace that cannot be imported."""
    team = user.personal_team
    assert team is not None
    problems = []
    for trace in sorted((settings.EXAMPLES_DIR / "traces").glob("*/trace.jsonl")):
        try:
            import_trace(trace.parent, team, user)
        except TraceRefused as error:
            problems.append(str(error))
    return problems


def _run_id(folder: Path, events: list[Event]) -> uuid.UUID:
    try:
        run_id = uuid.UUID(events[0].run)
    except ValueError:
        raise TraceRefused(f"{folder}: the run's id {events[0].run!r} is not a UUID") from None
    if str(run_id) != events[0].run or any(event.run != events[0].run for event in events):
        raise TraceRefused(f"{folder}: the events do not all belong to one run")
    return run_id


def _create(run_id: uuid.UUID, team: Team, user: User | None, title: str, events: list[Event], stored: dict[str, bytes]) -> Run:
    p = events[0].payload
    try:
        source = stored[p["source"]["sha"]].decode()
        name = str(p["task"]["name"])
        given = {name: p[name] for name in ("workflow", "device", "precision", "mode")}
        settings = settings_by_fork(events)[-1][1]
        chosen = settings.model_dump(mode="json") | given | {"workflow": settings.workflow}
        if "program" in p:
            chosen["program"] = p["program"]
        precision, device, workflow = chosen["precision"], chosen["device"], chosen["workflow"]
    except (KeyError, TypeError, ValueError) as error:
        raise TraceDamaged(f"run.started does not say what was run: {error}") from None
    task, _ = Task.objects.get_or_create(team=team, sha=sha256(source), defaults={"name": name[:120], "source": source, "created_by": user})
    return Run.objects.create(
        pk=run_id,
        team=team,
        task=task,
        title=(title or name)[:140],
        workflow=workflow,
        settings=chosen,
        device_kind=device.partition(":")[0],
        precision=precision,
        created_by=user,
        created_at=datetime.fromisoformat(events[0].at),
        imported=True,
    )


def row_of(event: Event) -> tuple[Any, ...]:
    at = datetime.fromisoformat(event.at)
    return (event.run, event.seq, event.v, at, event.span, event.parent, event.agent, event.kind, encode(event.payload))


def _stored(run: Run, shas: list[str]) -> Iterator[tuple[str, bytes]]:
    for sha in shas:
        yield sha, artefacts.get(run.team_id, sha)
