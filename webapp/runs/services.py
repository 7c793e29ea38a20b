"""Starts runs."""

from __future__ import annotations

from django.conf import settings as django_settings
from django.db import transaction

from agents.settings import Settings
from verifier.program import Program
from verifier.task import Task as TaskSource
from webapp.accounts.models import Team, User
from webapp.runs import artefacts
from webapp.runs.jobs import enqueue_run
from webapp.runs.models import Candidate, Run
from webapp.tasks.models import Task


class QuotaReached(ValueError):
    """Raised if the person or the team has reached the limit of unfinished runs. The message says what to do."""


def check_quota(user: User | None, team: Team) -> None:
    """Raise `QuotaReached` if another run would exceed the person's or the team's limit."""
    unfinished = Run.objects.filter(imported=False).exclude(state="finished")
    most, of_team = django_settings.MOST_OPEN_RUNS, django_settings.MOST_OPEN_RUNS_OF_TEAM
    if user is not None and unfinished.filter(created_by=user).count() >= most:
        raise QuotaReached(f"You have reached the limit of {most} unfinished runs: wait for some to finish, or cancel some.")
    if unfinished.filter(team=team).count() >= of_team:
        raise QuotaReached(f"{team.name} has reached the limit of {of_team} unfinished runs: wait for some to finish, or have members cancel some.")


def create_run(*, team: Team, user: User | None, task_source: str, title: str, settings: Settings, program_source: str | None = None) -> Run:
    """Queue a run.

    Raises `SourceError` if a source cannot be read, and `QuotaReached`. `program` is for the "verify" workflow.
    """
    sha = TaskSource.read(task_source).sha
    if program_source is not None:
        Program.read(program_source)
    check_quota(user, team)
    with transaction.atomic():
        name = "".join(character if character.isalnum() else "_" for character in title).strip("_")[:120] or "task"
        task, _ = Task.objects.get_or_create(team=team, sha=sha, defaults={"name": name, "source": task_source, "created_by": user})
        kept = settings.model_dump(mode="json")
        if program_source is not None:
            kept["program"] = artefacts.put(team.pk, program_source.encode(), "text/x-python", "program.py").model_dump()
        run = Run.objects.create(
            team=team,
            task=task,
            title=title[:140],
            workflow=settings.workflow,
            settings=kept,
            device_kind=settings.device.partition(":")[0],
            precision=settings.precision,
            created_by=user,
        )
        enqueue_run(run.pk)
    return run


def rerun(run: Run, user: User) -> Run:
    """Start another run of the same task with the same settings."""
    program = submitted_program(run)
    return create_run(
        team=run.team, user=user, task_source=run.task.source, title=run.title, settings=Settings.model_validate(run.settings), program_source=program
    )


def submitted_program(run: Run) -> str | None:
    """Return the program that a person submitted for a "verify" run."""
    kept = run.settings.get("program")
    return artefacts.get(run.team_id, kept["sha"]).decode() if kept else None


def candidate_source(run: Run, number: int) -> str | None:
    """Return a candidate's program or, for a "verify" run that has not begun, the submitted program."""
    candidate = Candidate.objects.select_related("program").filter(run=run, number=number).first()
    if candidate is not None:
        return artefacts.read(candidate.program).decode()
    return submitted_program(run) if not run.searches else None
