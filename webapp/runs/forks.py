"""Forks runs. A fork is a new run that starts with another run's events and continues with other settings (see `agents.forking`)."""

from __future__ import annotations

import uuid

from django.db import connection, transaction

from agents.events import Event
from agents.forking import ForkRefused, fork, refusal, settings_of
from agents.settings import Settings
from webapp.accounts.models import Team, User
from webapp.runs.jobs import enqueue_run
from webapp.runs.models import Event as EventRow
from webapp.runs.models import Run
from webapp.runs.services import QuotaReached, check_quota
from webapp.runs.trace.append import append
from webapp.runs.trace.on_disk import INSERT, row_of
from webapp.runs.trace.projection import event_of, project

__all__ = ["ForkRefused", "fork_run", "refused_at", "settings_now"]


def events_of(run: Run) -> list[Event]:
    return [event_of(row) for row in EventRow.objects.filter(run=run).order_by("seq").iterator(chunk_size=1000)]


def settings_now(run: Run) -> Settings:
    """Return the settings in force at the end of the run, with raised budgets, or the submitted settings if the run has not begun."""
    try:
        return settings_of(events_of(run))
    except ForkRefused:
        return Settings.model_validate(run.settings)


def refused_at(run: Run) -> int | None:
    """Return the last event before the first refusal, from which a run that exhausted its budget can be continued."""
    return refusal(events_of(run))


def fork_run(run: Run, at: int, settings: Settings, *, user: User, team: Team | None = None) -> Run:
    """Queue a run that starts with `run`'s events up to `at`.

    Raises `ForkRefused` if that is not possible, or if the person or the team has too many unfinished runs.
    """
    try:
        check_quota(user, team or run.team)
    except QuotaReached as reached:
        raise ForkRefused(str(reached)) from None
    new = uuid.uuid4()
    inherited, event = fork(events_of(run), at, settings, by=user.get_username(), run=str(new))
    kept = settings.model_dump(mode="json") | ({"program": run.settings["program"]} if run.settings.get("program") else {})
    with transaction.atomic():
        forked = Run.objects.create(
            pk=new,
            team=team or run.team,
            task=run.task,
            title=f"{run.title} (fork at {inherited[-1].seq})"[:140],
            workflow=settings.workflow,
            settings=kept,
            device_kind=settings.device.partition(":")[0],
            precision=settings.precision,
            created_by=user,
        )
        with connection.cursor() as cursor:
            cursor.executemany(INSERT, [row_of(one) for one in inherited])
        Run.objects.filter(pk=new).update(last_seq=inherited[-1].seq)
        project(new, inherited)
        append(new, [event])
        enqueue_run(new)
    forked.refresh_from_db()
    return forked
