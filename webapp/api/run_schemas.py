"""Schemas of runs in API requests and responses."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any, Literal

from django.conf import settings as django_settings
from django.urls import reverse
from ninja import Schema
from pydantic import ConfigDict, Field

from agents.choices.limits import LIMITS
from agents.choices.workflows import DEFAULT, SEARCHES, SIDE_BY_SIDE, Search
from agents.events import Outcome, State
from agents.settings import MOST_WORKERS, Settings
from verifier.report import Interval
from verifier.task import Mode, Precision
from webapp.accounts.signed_in import Request
from webapp.api.calls.fields import Source, Text
from webapp.api.calls.paging import Page
from webapp.runs.models import Run

DEVICE = r"^(cpu|cuda(:\d{1,3})?)$"


class Asked(Schema):
    """A request body or query that rejects unknown fields."""

    model_config = ConfigDict(extra="forbid")


class Limits(Asked):
    """The budget of a run; null means no limit."""

    candidates: int | None = LIMITS["candidates"].asked()
    calls: int | None = LIMITS["calls"].asked()
    tokens: int | None = LIMITS["tokens"].asked()
    dollars: float | None = LIMITS["dollars"].asked()
    verifier_seconds: float | None = LIMITS["verifier_seconds"].asked()
    seconds: float | None = LIMITS["seconds"].asked()


class SearchSettings(Asked):
    """The settings of the search for a program."""

    workflow: Search = Field(default=DEFAULT, description=" ".join(f"{name}: {workflow.sentence}" for name, workflow in SEARCHES.items()))
    planner: Text = Field(default="built-in", max_length=100, description='"built-in" (the compiler) or the name of a profile of a language model.')
    coder: Text = Field(default="built-in", max_length=100, description='"built-in" or a profile.')
    judge: Text = Field(default="built-in", max_length=100, description='Who reads measurements: "built-in" or a profile.')
    coder_mode: Literal["one", "frontend+mid-end"] = Field(
        default="one", description="One agent, or one that makes it right and one that makes it fast."
    )
    first_program: Literal["coder", "built-in"] = Field(
        default="coder", description="For stitch with a model as coder: begin with the model's own program, or with the compiler's and improve it."
    )
    language: Literal["cuda", "triton", "cpp"] | None = Field(
        default=None, description="Language of the program; null: CUDA C++ on a GPU, C++ on the CPU."
    )
    device: str = Field(default="cpu", pattern=DEVICE, description='"cpu", "cuda" (any GPU) or one GPU such as "cuda:0".', examples=["cuda"])
    precision: Precision = Field(default="fp32-strict", description="The error bound of the program and the arithmetic of its baselines.")
    mode: Mode = Field(default="train", description="train() as KernelBench leaves it, or eval().")
    target: float | None = Field(default=None, ge=1, le=1000, description="Stop at this lower bound of the speedup against eager.")
    workers: int = Field(
        default=4, ge=1, le=MOST_WORKERS, description=f"Branches at once in {SIDE_BY_SIDE}; a device measures one program at a time."
    )
    review_plan: bool = Field(default=False, description="Pause after the first plan until a person has reviewed it.")
    budget: Limits = Limits()
    seed: int = Field(default=0, ge=0, le=2**31 - 1, description="Seed of the search; measurements draw their own.")

    def settings(self) -> Settings:
        return Settings.model_validate(self.model_dump())


class NewRun(Asked):
    """Either `task` or `task_source`."""

    task: uuid.UUID | None = Field(default=None, description="Id of a task of the team.")
    task_source: Source | None = Field(default=None, description="Source of the task: `class Model(nn.Module)`, `get_inputs()`, `get_init_inputs()`.")
    title: Text = Field(default="", max_length=140, description="Shown in lists; default: the task's name or its docstring.")
    settings: SearchSettings = SearchSettings()

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"task_source": "import torch\n…", "title": "softmax", "settings": {"device": "cpu", "budget": {"candidates": 4}}}]
        }
    )


class Named(Schema):
    id: uuid.UUID
    name: str


class RunTask(Named):
    sha: str = Field(description="SHA-256 of the source, which identifies a task.")


class RunRow(Schema):
    """A run as shown in lists."""

    id: uuid.UUID
    title: str
    page: str = Field(description="Address of its page.")
    task: RunTask
    team: Named
    workflow: str
    device: str = Field(description='As requested: "cpu", "cuda", "cuda:0".')
    precision: str
    mode: str
    state: State = Field(description="What it is doing; apart from its outcome.")
    outcome: Outcome | None = Field(description="Null until it has finished.")
    reason: str = Field(description="Why it ended, as a sentence.")
    best_candidate: int | None
    speedup: Interval | None = Field(description="Speedup of the best program over eager PyTorch, with its 95 % interval; the device is the run's.")
    last_seq: int = Field(description="Seq of its last event: the cursor of a client that has read everything.")
    published: bool = Field(description="Everyone who can sign in sees it.")
    imported: bool
    created_by: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class RunDetail(RunRow):
    settings: dict[str, Any] = Field(description="All settings, as in the event `run.started`.")
    spent: dict[str, float] = Field(description=f"By unit: {', '.join(LIMITS)}.")
    candidates: int = Field(description="How many programs were proposed.")
    can_act: bool = Field(description="Whether you may steer it.")


class RunPage(Page):
    runs: list[RunRow]


class Fork(Asked):
    """A new run that starts with this run's events and continues with different settings."""

    at: int | None = Field(default=None, ge=1, le=2**62, description="Seq of the last event to take over; null: all events so far.")
    changes: dict[str, Any] = Field(
        default_factory=dict,
        description="Settings that differ, by the names of `SearchSettings`; `budget` may name single limits; device, precision and mode stay.",
        examples=[{"coder": "strong", "budget": {"calls": 80}}],
    )


class Control(Asked):
    action: Literal["pause", "resume", "cancel", "raise-budget"]
    limits: Limits | None = Field(default=None, description="For `raise-budget`: the limits to raise; the others stay.")


class Note(Asked):
    text: Text = Field(
        min_length=1, max_length=4000, description="Goes into the agent's next prompt, once.", examples=["the last dimension is always 4096"]
    )
    to: Literal["all", "planner", "coder", "verifier"] = "all"


class Accepted(Schema):
    """The request was accepted. The run acts on it at its next step and confirms this with an event."""

    accepted: bool = True
    run: uuid.UUID
    state: State = Field(description="State of the run when the request arrived.")


def row_of(run: Run, request: Request) -> RunRow:
    return RunRow.model_validate(_common(run, request))


def detail_of(run: Run, request: Request, can_act: bool) -> RunDetail:
    kept = {name: value for name, value in (run.settings or {}).items() if name != "program"}
    more = {"settings": kept, "spent": run.spent or {}, "candidates": run.candidates.count(), "can_act": can_act}
    return RunDetail.model_validate(_common(run, request) | more)


def _common(run: Run, request: Request) -> dict[str, Any]:
    kept = run.settings or {}
    names = ("id", "title", "workflow", "precision", "state", "reason", "best_candidate", "speedup", "last_seq", "published", "imported")
    times = ("created_at", "started_at", "finished_at")
    return {name: getattr(run, name) for name in names + times} | {
        "page": page_of_run(run.pk, request),
        "task": {"id": run.task_id, "name": run.task.name, "sha": run.task.sha},
        "team": {"id": run.team_id, "name": run.team.name},
        "device": kept.get("device") or run.device_kind,
        "mode": kept.get("mode") or "train",
        "outcome": run.outcome or None,
        "created_by": run.created_by.get_username() if run.created_by else None,
    }


def page_of_run(run: uuid.UUID, request: Request) -> str:
    return address(reverse("runs:run", args=[run]), request)


def address(path: str, request: Request) -> str:
    """Return the URL of a human-readable page."""
    return f"{'https' if django_settings.HTTPS else request.scheme}://{request.get_host()}{path}"
