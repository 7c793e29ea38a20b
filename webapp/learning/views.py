"""Training pages: the list, a training run with its live curves, and a rollout as a trace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse, HttpResponseNotModified, JsonResponse
from django.shortcuts import render
from django.utils.safestring import SafeString, mark_safe
from django.views.decorators.http import require_GET

from webapp.accounts.signed_in import Request
from webapp.diffs.compute import Diff, compute
from webapp.diffs.table import Table
from webapp.learning.curves import CHARTS, SUPERVISED, Chart
from webapp.learning.files import ROLLOUTS, Problem
from webapp.learning.folders import Training, shows_rollouts, training_for, trainings_for
from webapp.learning.rollouts import Rollout, rollouts_of

MOST_LISTED = 100
MOST_PARTS = 12  # maximum number of parts of a diff, 160 rows each


@login_required
@require_GET
def trainings(request: Request) -> HttpResponse:
    problem, found = None, []
    try:
        found = trainings_for(request)
    except Problem as unread:
        problem = unread
    context = {"trainings": found[:MOST_LISTED], "more": max(0, len(found) - MOST_LISTED), "problem": problem, "command": start_command(request)}
    return render(request, "learning/_trainings.html" if request.htmx else "learning/list.html", context)


@login_required
@require_GET
def training(request: Request, training: str) -> HttpResponse:
    found = training_for(request, training)
    if request.htmx and request.GET.get("part") != "rollouts":
        return render(request, "learning/_standing.html", {"training": found})
    context = {"training": found, "charts": charts_of(found), **step_context(request, found)}
    return render(request, "learning/_rollouts.html" if request.htmx else "learning/training.html", context)


@login_required
@require_GET
def figures(request: Request, training: str) -> HttpResponse:
    """Returns the curves for the page's script, which polls for them. They are sent only if they have changed."""
    found = training_for(request, training)
    tag = f'"{found.curves.stamp}"'
    if request.headers.get("If-None-Match") == tag:
        return HttpResponseNotModified()
    response = JsonResponse(found.curves.drawn(charts_of(found)))
    response["ETag"], response["Cache-Control"] = tag, "private, no-cache"
    return response


@login_required
@require_GET
def rollout(request: Request, training: str, step: int, rollout: int) -> HttpResponse:
    found = training_for(request, training)
    if not shows_rollouts(request, found):
        raise Http404("these rollouts are not for everybody")
    context: dict[str, Any] = {"training": found, "step": step}
    try:
        every = rollouts_of(found.folder / ROLLOUTS, step)
    except Problem as problem:
        return render(request, "learning/rollout.html", context | {"problem": problem})
    if not 0 < rollout <= len(every):
        raise Http404("no such rollout")
    chosen = every[rollout - 1]
    at = min(number_in(request, "turn", len(chosen.turns)), len(chosen.turns)) - 1
    context |= {"rollout": chosen, "total": len(every), "turn": chosen.turns[max(0, at)], "change": change_of(chosen, max(0, at))}
    return render(request, "learning/rollout.html", context)


def start_command(request: Request) -> str:
    """Returns the command that starts a training run whose curves and rollouts the person's team will see on this page."""
    where = f"--team {request.team.slug if request.team else 'TEAM'} --out DATA_DIR/learning/first"
    return f"python -m agents.rl train --server http://127.0.0.1:8765 --model NAME --device cuda:0 {where}"


def number_in(request: Request, name: str, otherwise: int) -> int:
    """Returns a number from the query string."""
    asked = request.GET.get(name, "")
    return int(asked) if asked.isascii() and asked.isdecimal() and len(asked) < 16 else otherwise


def charts_of(training: Training) -> tuple[Chart, ...]:
    known = training.curves.series
    supervised = training.kind == "supervised" or not training.kind and "loss" in known and "reward" not in known
    return SUPERVISED if supervised else CHARTS


def step_context(request: Request, training: Training) -> dict[str, Any]:
    """Returns the rollouts of the step in the query string or, if there is none, of the latest step."""
    step = number_in(request, "step", training.curves.step)
    context: dict[str, Any] = {"step": step, "asked": step != training.curves.step, "open": shows_rollouts(request, training), "rollouts": []}
    if context["open"] and training.has_rollouts:
        try:
            context["rollouts"] = rollouts_of(training.folder / ROLLOUTS, step)
        except Problem as problem:
            context["problem"] = problem
    return context


@dataclass(frozen=True)
class Change:
    """The diff of a turn's program."""

    against: str  # description of the old side
    diff: Diff
    rows: SafeString
    left: int  # number of rows that are not shown


def change_of(rollout: Rollout, at: int) -> Change:
    """Compares the program with the one shown to the model in that turn. The first program is compared with the task."""
    new = rollout.turns[at].program
    if at:
        old, against = rollout.turns[at - 1].program, f"turn {at}"
    else:
        old, against = (rollout.before, "the program before") if rollout.before else (rollout.task, "the task")
    diff = compute(old, new)
    table = Table(diff, old, new, "inline", unfolded=True)
    parts = min(table.parts, MOST_PARTS)
    rows = mark_safe("".join(table.part(number) for number in range(parts)))  # noqa: S308 - the table escapes what it writes
    return Change(against, diff, rows, sum(table.part_sizes()[parts:]))
