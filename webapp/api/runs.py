"""Runs: list, start, read, steer and fork."""

from __future__ import annotations

import uuid
from typing import Annotated, Any, Literal, cast

from django.db import transaction
from django.db.models import Q
from django.http import HttpResponse
from ninja import Query, Router, Status
from pydantic import Field
from pydantic import ValidationError as SettingsInvalid

from agents.choices.workflows import Name
from agents.events import Outcome, State
from agents.settings import Settings
from webapp.accounts import audit
from webapp.accounts.access import teams_with
from webapp.accounts.signed_in import Request
from webapp.api.calls.caller import needs
from webapp.api.calls.fields import Text
from webapp.api.calls.idempotency import HEADER_PARAMETER, once
from webapp.api.calls.paging import page_of
from webapp.api.calls.problems import CallRefused, refusals, wrong
from webapp.api.run_schemas import (
    Accepted,
    Asked,
    Control,
    Fork,
    NewRun,
    Note,
    RunDetail,
    RunPage,
    SearchSettings,
    detail_of,
    row_of,
)
from webapp.api.starting import check_settings, source_of, start, team_of
from webapp.runs import control as runs_control
from webapp.runs import forks
from webapp.runs.access import run_for, visible_runs
from webapp.runs.models import Run

router = Router(tags=["runs"])
ERRORS = refusals(400, 401, 403, 404, 409, 422, 429)
CREATES = {"parameters": [HEADER_PARAMETER]}


class Filters(Asked):
    state: Literal["queued", "running", "paused", "finished"] | None = None
    outcome: Outcome | None = None
    workflow: Name | None = None
    device: Literal["cpu", "cuda"] | None = None
    precision: Literal["fp32-strict", "tf32", "bf16", "fp16"] | None = None
    task: uuid.UUID | None = Field(default=None, description="Id of a task.")
    q: Text = Field(default="", max_length=140, description="Every word has to occur in the title, the task's name or the person's name.")
    archived: bool = Field(default=False, description="Archived runs instead of the others.")
    published: bool = Field(default=False, description="Also what other teams publish.")
    cursor: Text | None = Field(default=None, max_length=200, description="`next` of the previous page.")
    limit: Annotated[int, Field(ge=1, le=200)] = 50


@router.get("", response={200: RunPage, **ERRORS}, operation_id="list_runs", summary="List runs")
def list_runs(request: Request, filters: Query[Filters]) -> Any:
    """Returns runs in pages, newest first."""
    needs(request, "read")
    runs = visible_runs(request) if filters.published else Run.objects.filter(team__in=teams_with(request))
    exact = {
        "state": filters.state,
        "outcome": filters.outcome,
        "workflow": filters.workflow,
        "device_kind": filters.device,
        "precision": filters.precision,
        "task_id": filters.task,
    }
    runs = runs.filter(archived_at__isnull=not filters.archived, **{name: value for name, value in exact.items() if value is not None})
    for word in filters.q.split()[:8]:
        runs = runs.filter(Q(title__icontains=word) | Q(task__name__icontains=word) | Q(created_by__username__icontains=word))
    rows, after = page_of(runs.select_related("task", "team", "created_by"), filters.cursor, filters.limit)
    return {"runs": [row_of(run, request) for run in rows], "next": after}


@router.post("", response={201: RunDetail, **ERRORS}, operation_id="start_run", summary="Start a run", openapi_extra=CREATES)
def start_run(request: Request, given: NewRun) -> HttpResponse:
    """Queues a run in which agents search for a faster program for the task. Follow its progress through its event stream."""
    needs(request, "submit")
    team = team_of(request)
    settings = given.settings.settings()
    source, name = source_of(request, given.task, given.task_source)
    check_settings(settings)

    def create() -> tuple[int, Any]:
        run = start(request, source=source, title=given.title or name, settings=settings)
        return 201, detail_of(run, request, True)

    return once(request, team, create)


@router.get("/{run_id}", response={200: RunDetail, **ERRORS}, operation_id="get_run", summary="Look at a run")
def get_run(request: Request, run_id: uuid.UUID) -> Any:
    needs(request, "read")
    run, can_act = run_for(request, run_id)
    return detail_of(run, request, can_act)


@router.post("/{run_id}/control", response={202: Accepted, **ERRORS}, operation_id="control_run", summary="Pause, resume, cancel, raise the budget")
def control_run(request: Request, run_id: uuid.UUID, given: Control) -> Any:
    """Asks the run to pause, resume or cancel. The run does so at its next step and confirms it with an event. Repeating the call does no harm."""
    run = _steered(request, run_id)
    if given.action != "raise-budget":
        runs_control.request_control(run, given.action, by=request.user)
        return Status(202, Accepted(run=run.pk, state=cast(State, run.state)))
    limits = given.limits.model_dump(exclude_unset=True) if given.limits else {}
    present = forks.settings_now(run).budget
    raised = {
        unit: value for unit, value in limits.items() if getattr(present, unit) is not None and (value is None or value > getattr(present, unit))
    }
    if not raised:
        raise wrong(
            "body.limits", "nothing is raised: name a limit with a value above its current one", f"Now: {present.model_dump(exclude_none=True)}."
        )
    with transaction.atomic():
        runs_control.request_control(run, "raise-budget", by=request.user, limits=raised)
        audit.record(request, run.team, "budget.raised", run.title, {"run": str(run.pk), "limits": raised})
    return Status(202, Accepted(run=run.pk, state=cast(State, run.state)))


@router.post("/{run_id}/notes", response={202: Accepted, **ERRORS}, operation_id="send_note", summary="Send a note to an agent")
def send_note(request: Request, run_id: uuid.UUID, given: Note) -> Any:
    """Adds the note to the agent's next prompt, once. The built-in compiler does not read free text in the roles that it plays; it understands only
    lines such as `skip row-cache`, `only try block-size` or `allow all`. A note that nobody would read is refused."""
    run = _steered(request, run_id)
    try:
        runs_control.send_note(run, given.text, given.to, by=request.user)
    except runs_control.NotTaken as error:
        raise wrong("body.text", str(error)) from None
    return Status(202, Accepted(run=run.pk, state=cast(State, run.state)))


@router.post("/{run_id}/forks", response={201: RunDetail, **ERRORS}, operation_id="fork_run", summary="Fork a run", openapi_extra=CREATES)
def fork_run(request: Request, run_id: uuid.UUID, given: Fork) -> HttpResponse:
    """Creates a new run that starts with this run's events up to `at` and continues with different settings. Existing measurements are kept."""
    needs(request, "submit")
    run, _ = run_for(request, run_id, "act")
    if run.last_seq == 0:
        raise CallRefused(409, "This run has not begun.", "Start another run with other settings instead.")
    if not run.searches:
        raise CallRefused(409, "This run verifies a program, so other settings would change nothing.", "Start another verification.")
    settings = _changed(forks.settings_now(run), given.changes)
    check_settings(settings, "body.changes.")

    def create() -> tuple[int, Any]:
        try:
            forked = forks.fork_run(run, given.at or run.last_seq, settings, user=request.user)
        except forks.ForkRefused as error:
            raise CallRefused(409, str(error)) from None
        return 201, detail_of(forked, request, True)

    return once(request, run.team, create)


def _changed(present: Settings, changes: dict[str, Any]) -> Settings:
    budget = changes.get("budget")
    if budget is not None and not isinstance(budget, dict):
        raise wrong("body.changes.budget", "this isn't an object of limits")
    shown = present.model_dump(include=set(SearchSettings.model_fields))
    merged = {**shown, **changes, "budget": {**shown["budget"], **(budget or {})}}
    try:
        return present.model_copy(update=dict(SearchSettings.model_validate(merged).settings()))
    except SettingsInvalid as error:
        first = error.errors()[0]
        place = ".".join(["body", "changes", *(str(part) for part in first["loc"])])
        raise wrong(place, first["msg"].removeprefix("Value error, ")) from None


def _steered(request: Request, run_id: uuid.UUID) -> Run:
    needs(request, "submit")
    run, _ = run_for(request, run_id, "act")
    if run.state == "finished":
        raise CallRefused(409, "The run has ended.", "Fork it to continue from one of its events.")
    return run
