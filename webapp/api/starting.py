"""Checks the task, the device and the models before a run is queued."""

from __future__ import annotations

import uuid

from agents.roles.casting import impossible
from agents.settings import Settings
from verifier.program import Program
from verifier.source import SourceError
from verifier.task import Task as TaskSource
from webapp.accounts.access import team_for, teams_with
from webapp.accounts.models import Team
from webapp.accounts.signed_in import Request
from webapp.api.calls.fields import storable
from webapp.api.calls.problems import CallRefused, bad_source, wrong
from webapp.fleet.choices import device_choices
from webapp.runs import services
from webapp.runs.models import Run
from webapp.tasks.examples import described
from webapp.tasks.models import Task
from webapp.tasks.search_fields import AnnouncedModels


def source_of(request: Request, task: uuid.UUID | None, source: str | None) -> tuple[str, str]:
    """Return (source, name) of the task. The request must contain either its id or its source, but not both."""
    if (task is None) == (source is None):
        raise wrong("body", "send either `task`, the id of a task of your team, or `task_source`", "GET /api/v1/tasks lists the tasks.")
    if source is not None:
        try:
            TaskSource.read(source)
        except SourceError as error:
            raise bad_source("body.task_source", error.problems) from None
        return source, described(source)[:140] or "model"
    found = Task.objects.filter(pk=task, team__in=teams_with(request)).first() if task is not None else None
    if found is None:
        raise wrong("body.task", "there is no such task in your team", "GET /api/v1/tasks lists the tasks.")
    return found.source, found.name


def program_of(source: str) -> str:
    try:
        Program.read(source)
    except SourceError as error:
        raise bad_source("body.program_source", error.problems) from None
    return source


def check_settings(settings: Settings, where: str = "body.settings.") -> None:
    """Raise 422 for settings that no verifier or no model of this installation supports."""
    for role in ("planner", "coder", "judge"):
        storable(getattr(settings, role))
    kind = settings.device.partition(":")[0]
    choice = next((choice for choice in device_choices() if choice.kind == kind), None)
    if choice is None or not choice.usable:
        raise wrong(f"{where}device", "no verifier with a GPU has ever connected here", "GET /api/v1/devices lists the devices.")
    if ":" in settings.device and not any(device.device == settings.device for device in choice.devices):
        raise wrong(f"{where}device", f"no verifier has announced {settings.device}", "GET /api/v1/devices lists the devices.")
    reason = impossible(settings, AnnouncedModels())
    if reason:
        raise CallRefused(422, f"These settings cannot work together: {reason}.", "GET /api/v1/devices names devices and models.")


def start(request: Request, *, source: str, title: str, settings: Settings, program: str | None = None) -> Run:
    try:
        return services.create_run(
            team=team_for(request), user=request.user, task_source=source, title=title.strip() or "model", settings=settings, program_source=program
        )
    except services.QuotaReached as reached:
        raise CallRefused(429, str(reached), "GET /api/v1/runs?state=queued lists the queued runs.") from None


def team_of(request: Request) -> Team:
    """Return the team in which the request creates something; raise 403 if the caller may only read."""
    return team_for(request)
