"""The tasks of the team: list, create and read."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Annotated, Any

from django.db.models import Q
from django.http import Http404, HttpResponse
from ninja import Query, Router, Schema
from pydantic import ConfigDict, Field

from verifier.source import SourceError
from verifier.task import Task as TaskSource
from webapp.accounts.access import teams_with
from webapp.accounts.signed_in import Request
from webapp.api.calls.caller import needs
from webapp.api.calls.fields import Source, Text
from webapp.api.calls.idempotency import HEADER_PARAMETER, once
from webapp.api.calls.paging import Page, page_of
from webapp.api.calls.problems import bad_source, refusals
from webapp.api.run_schemas import Asked
from webapp.api.starting import team_of
from webapp.tasks.examples import described
from webapp.tasks.models import Task

router = Router(tags=["tasks"])
ERRORS = refusals(400, 401, 403, 404, 422, 429)


class TasksAsked(Asked):
    q: Text = Field(default="", max_length=140, description="Every word has to occur in the name or the suite's.")
    suite: Text = Field(default="", max_length=110, description="Slug of a suite.", examples=["kernelbench-level1"])
    cursor: Text | None = Field(default=None, max_length=200, description="`next` of the previous page.")
    limit: Annotated[int, Field(ge=1, le=200)] = 50


class NewTask(Asked):
    model_config = ConfigDict(json_schema_extra={"examples": [{"source": "import torch\n…", "name": "softmax"}]})

    source: Source = Field(
        description="Python in KernelBench's format: `class Model(nn.Module)`, `get_inputs()`, `get_init_inputs()`. Parsed here, never run."
    )
    name: Text = Field(default="", max_length=120, description="Default: from the docstring.")


class TaskRow(Schema):
    id: uuid.UUID
    name: str
    suite: str | None = Field(description="Slug of its suite.")
    sha: str = Field(description="SHA-256 of the source; the same source in the same team is the same task.")
    flags: list[str] = Field(description="trivial or stochastic: proves little, stays out of rankings. From the last admission.")
    created_at: datetime


class TaskDetail(TaskRow):
    source: str


class TaskPage(Page):
    tasks: list[TaskRow]


def _row(task: Task) -> dict[str, Any]:
    names = ("id", "name", "sha", "flags", "created_at", "source")
    return {name: getattr(task, name) for name in names} | {"suite": task.suite.slug if task.suite else None}


@router.get("", response={200: TaskPage, **ERRORS}, operation_id="list_tasks", summary="List tasks")
def list_tasks(request: Request, asked: Query[TasksAsked]) -> Any:
    """Returns your team's tasks, newest first."""
    needs(request, "read")
    tasks = Task.objects.select_related("suite").filter(team__in=teams_with(request))
    if asked.suite:
        tasks = tasks.filter(suite__slug=asked.suite)
    for word in asked.q.split()[:8]:
        tasks = tasks.filter(Q(name__icontains=word) | Q(suite__name__icontains=word))
    rows, after = page_of(tasks, asked.cursor, asked.limit)
    return {"tasks": [_row(task) for task in rows], "next": after}


@router.post(
    "",
    response={200: TaskDetail, 201: TaskDetail, **ERRORS, **refusals(409)},
    operation_id="create_task",
    summary="Put a task",
    openapi_extra={"parameters": [HEADER_PARAMETER]},
)
def create_task(request: Request, given: NewTask) -> HttpResponse:
    """Stores a task without starting a run. Responds with 200 and the existing task if the team already has the same source."""
    needs(request, "submit")
    team = team_of(request)
    try:
        sha = TaskSource.read(given.source).sha
    except SourceError as error:
        raise bad_source("body.source", error.problems) from None

    def create() -> tuple[int, Any]:
        name = given.name.strip() or described(given.source)[:120] or "model"
        defaults = {"name": name, "source": given.source, "created_by": request.user}
        task, made = Task.objects.select_related("suite").get_or_create(team=team, sha=sha, defaults=defaults)
        return 201 if made else 200, TaskDetail.model_validate(_row(task))

    return once(request, team, create)


@router.get("/{task_id}", response={200: TaskDetail, **ERRORS}, operation_id="get_task", summary="Look at a task")
def get_task(request: Request, task_id: uuid.UUID) -> Any:
    """Returns a task with its source."""
    needs(request, "read")
    task = Task.objects.select_related("suite").filter(pk=task_id, team__in=teams_with(request)).first()
    if task is None:
        raise Http404("no such task")
    return _row(task)
