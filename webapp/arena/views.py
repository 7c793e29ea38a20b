"""The arena pages: the list of a person's arenas, the form that starts one, and the progress of one arena."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from agents.arena.scoring import INTERVAL, plain
from agents.choices.workflows import SEARCHES
from webapp.accounts.access import has_right, require, team_for, writable_teams
from webapp.accounts.signed_in import Request
from webapp.arena import services
from webapp.arena.curves import plot
from webapp.arena.forms import ArenaForm
from webapp.arena.models import Arena
from webapp.arena.played import played_results
from webapp.fleet.choices import device_choices
from webapp.runs.services import QuotaReached
from webapp.ui.tags import whisker_scale

MOST_LISTED = 100


@login_required
@require_GET
def arenas(request: Request) -> HttpResponse:
    found = services.arenas_of(request.team)[:MOST_LISTED]
    return render(request, "arena/list.html", {"arenas": found, "played": played_results(), "can_start": has_right(request, request.team, "act")})


@login_required
@require_http_methods(["GET", "POST"])
def start(request: Request) -> HttpResponse:
    require(request, request.team, "act")
    devices, teams = device_choices(), writable_teams(request)
    online = any(choice.kind == "cuda" and choice.online for choice in devices)
    initial = {"device": "cuda" if online else "cpu", "tasks": [f"example:{slug}" for slug in ("softmax", "rms_norm", "layer_norm_gelu")]}
    form = ArenaForm(request.POST or None, devices=devices, teams=teams, initial=initial)
    if request.method == "POST" and form.is_valid():
        chosen, tasks = form.chosen(), form.chosen_tasks()
        name = form.cleaned_data["name"].strip() or default_name(chosen.workflows, [title for title, _ in tasks])
        team = team_for(request, form.cleaned_data["team"])
        try:
            return redirect("arena:arena", services.create_arena(team=team, user=request.user, name=name, tasks=tasks, chosen=chosen).pk)
        except QuotaReached as reached:
            form.add_error(None, str(reached))
    context = {
        "form": form,
        "devices": devices,
        "teams": teams,
        "searches": [(name, workflow.sentence) for name, workflow in SEARCHES.items()],
        "ticked_tasks": set(form["tasks"].value() or []),
        "ticked_workflows": set(form["workflows"].value() or []),
        "most": services.MOST_RUNS,
    }
    return render(request, "arena/start.html", context, status=422 if form.errors else 200)


def default_name(workflows: Sequence[str], tasks: Sequence[str]) -> str:
    what = tasks[0] if len(tasks) == 1 else f"{len(tasks)} tasks"
    return f"{', '.join(workflows) if len(workflows) < 4 else f'{len(workflows)} workflows'} on {what}"


@login_required
@require_GET
def arena(request: Request, arena_id: uuid.UUID) -> HttpResponse:
    found, can_steer = services.arena_for(request, arena_id)
    template = "arena/standing.html" if request.htmx else "arena/arena.html"
    return render(request, template, {"arena": found, "can_steer": can_steer, **standing_context(found)})


def standing_context(found: Arena) -> dict[str, Any]:
    standing = services.standing(found)
    scored = standing.scores
    intervals = [{"ratio": score.geometric_mean, "low": score.low, "high": score.high} for score in scored]
    total = len(standing.entries)
    return {
        "standing": standing,
        "total": total,
        "table": [(score, interval) for score, interval in zip(scored, intervals, strict=True)],
        "scale": whisker_scale(intervals),
        "plot": plot(services.progress_of(standing.entries)),
        "by_task": by_task(standing, list(found.settings.get("workflows", []))),
        "workflows": found.settings.get("workflows", []),
        "models": found.settings.get("llm") != "built-in",
        "interval": INTERVAL,
    }


def by_task(standing: services.Standing, workflows: list[str]) -> list[dict[str, Any]]:
    """Returns one row per task, with the runs of each workflow in the order of the seeds."""
    tasks: dict[str, dict[str, list[Any]]] = {}
    for entry in standing.entries:
        tasks.setdefault(entry.run.title, {}).setdefault(entry.run.workflow, []).append(entry)
    return [{"task": task, "cells": [(workflow, runs.get(workflow, [])) for workflow in workflows]} for task, runs in tasks.items()]


@login_required
@require_GET
def export(request: Request, arena_id: uuid.UUID) -> JsonResponse:
    found, _ = services.arena_for(request, arena_id)
    standing = services.standing(found)
    content = {
        "version": 1,
        "arena": str(found.pk),
        "name": found.name,
        "settings": found.settings,
        "runs": len(standing.entries),
        "ended": standing.done,
        "interval": INTERVAL,
        "scores": plain(standing.scores),
        "rows": [asdict(row) for row in standing.rows],
    }
    answer = JsonResponse(content, json_dumps_params={"indent": 1})
    answer["Content-Disposition"] = f'attachment; filename="arena-{found.pk}.json"'
    return answer


@login_required
@require_POST
def cancel(request: Request, arena_id: uuid.UUID) -> HttpResponse:
    found, _ = services.arena_for(request, arena_id, "act")
    count = services.cancel_all(found, request.user)
    messages.success(request, f"{count} run{'s' if count != 1 else ''} asked to stop; what was measured is kept.")
    return redirect("arena:arena", found.pk)
