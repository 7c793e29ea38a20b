"""Starts an arena and collects its rows, scores and curves."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.models import Count, Q, QuerySet
from django.http import Http404

from agents.arena.scoring import FinishedRun, Score, scores
from agents.settings import Budget, Settings
from verifier.task import Precision
from webapp.accounts.access import Asker, Right, has_right, require
from webapp.accounts.models import Team, User
from webapp.arena.models import Arena, ArenaRun
from webapp.runs import control, services
from webapp.runs.models import Candidate, Run

MOST_RUNS = 300  # per arena; about a day on one GPU


@dataclass(frozen=True)
class Chosen:
    """The settings that all runs of an arena share, and those in which they differ."""

    workflows: Sequence[str]
    seeds: Sequence[int]
    llm: str
    device: str
    precision: Precision
    budget: Budget

    def settings(self, workflow: str, seed: int) -> Settings:
        return Settings(
            workflow=workflow, device=self.device, precision=self.precision, budget=self.budget, seed=seed,
            planner=self.llm, coder=self.llm, judge=self.llm,
        )  # fmt: skip

    def plain(self, tasks: Sequence[str]) -> dict[str, Any]:
        return {
            "tasks": list(tasks), "workflows": list(self.workflows), "seeds": list(self.seeds), "llm": self.llm, "device": self.device,
            "precision": self.precision, "budget": self.budget.model_dump(),
        }  # fmt: skip


def create_arena(*, team: Team, user: User, name: str, tasks: Sequence[tuple[str, str]], chosen: Chosen) -> Arena:
    """Queues a run for each seed, task (name, source) and workflow. Seeds form the outermost loop, so that even early figures compare all
    workflows."""
    with transaction.atomic():
        arena = Arena.objects.create(team=team, name=name[:140], settings=chosen.plain([title for title, _ in tasks]), created_by=user)
        for seed in chosen.seeds:
            for title, source in tasks:
                for workflow in chosen.workflows:
                    settings = chosen.settings(workflow, seed)
                    run = services.create_run(team=team, user=user, task_source=source, title=title, settings=settings)
                    ArenaRun.objects.create(arena=arena, run=run, seed=seed)
    return arena


def arenas_of(team: Team) -> QuerySet[Arena]:
    done = Count("entries", filter=Q(entries__run__state="finished"))
    return Arena.objects.filter(team=team).annotate(runs=Count("entries"), done=done).select_related("team").order_by("-created_at")


def arena_for(asker: Asker, arena_id: uuid.UUID, right: Right = "view") -> tuple[Arena, bool]:
    """Returns the arena, and whether the requester may steer its runs. Raises `Http404` if the arena belongs to another team, and `PermissionDenied`
    if the right is missing."""
    arena = Arena.objects.filter(pk=arena_id).select_related("team", "created_by").first()
    if arena is None:
        raise Http404("no such arena")
    require(asker, arena.team_id, right)
    return arena, has_right(asker, arena.team_id, "act")


@dataclass(frozen=True)
class Standing:
    """The current state of an arena."""

    entries: list[ArenaRun]
    rows: list[FinishedRun]

    @property
    def done(self) -> int:
        return len(self.rows)

    @property
    def waiting(self) -> list[ArenaRun]:
        """Returns the runs that need a person's attention."""
        return [entry for entry in self.entries if entry.run.state == "paused"]

    @property
    def running(self) -> list[ArenaRun]:
        return [entry for entry in self.entries if entry.run.state == "running"]

    @property
    def finished(self) -> bool:
        return bool(self.entries) and self.done == len(self.entries)

    @property
    def scores(self) -> list[Score]:
        return scores(self.rows) if self.rows else []


def standing(arena: Arena) -> Standing:
    entries = list(arena.entries.select_related("run", "run__task").order_by("seed", "run__task__name", "pk"))
    return Standing(entries, [row_of(entry) for entry in entries if entry.run.state == "finished"])


def row_of(entry: ArenaRun) -> FinishedRun:
    """Returns the row of a finished run. A run counts as a success only if a confirmed program is faster."""
    run = entry.run
    spent = {"calls": 0, "tokens": 0, "dollars": 0.0, "candidates": 0, "verifier_seconds": 0.0, "seconds": 0.0, **(run.spent or {})}
    ratio = run.speedup["ratio"] if run.speedup else None
    return FinishedRun(
        task=run.title, workflow=run.workflow, seed=entry.seed, success=run.outcome == "improved" and ratio is not None, speedup=ratio,
        outcome=run.outcome, calls=int(spent["calls"]), tokens=int(spent["tokens"]), dollars=spent["dollars"], programs=int(spent["candidates"]),
        verifier_seconds=spent["verifier_seconds"], seconds=spent["seconds"], reason=run.reason[:500], place=str(run.pk),
    )  # fmt: skip


def progress_of(entries: Sequence[ArenaRun]) -> dict[str, list[list[float]]]:
    """Returns the best speedup after 0, 1, 2, ... programs as one curve per run, keyed by workflow. The speedup is 1 until a program is both correct
    and faster."""
    runs = {entry.run_id: entry.run.workflow for entry in entries if entry.run.state == "finished"}
    measured = (
        Candidate.objects.filter(run_id__in=runs).order_by("run_id", "number").values_list("run_id", "verification__speedup", "verification__status")
    )
    curves: dict[Any, list[float]] = {run: [1.0] for run in runs}
    for run, speedup, status in measured:
        best = curves[run][-1]
        curves[run].append(max(best, speedup) if status == "passed" and speedup else best)
    found: dict[str, list[list[float]]] = {}
    for run, curve in curves.items():
        found.setdefault(runs[run], []).append(curve)
    return found


def cancel_all(arena: Arena, user: User) -> int:
    """Asks all unfinished runs to stop. Existing measurements are kept."""
    open_runs = list(Run.objects.filter(arena_entry__arena=arena).exclude(state="finished"))
    for run in open_runs:
        control.request_control(run, "cancel", by=user)
    return len(open_runs)
