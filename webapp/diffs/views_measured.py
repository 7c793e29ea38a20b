"""Measures a diff hunk by hunk: the cost estimate, the request, its progress and its cancellation."""

from __future__ import annotations

import uuid

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from webapp.accounts.access import Right
from webapp.accounts.audit import record
from webapp.accounts.signed_in import Request
from webapp.diffs import measured as service
from webapp.diffs.effects import measured_context
from webapp.diffs.measured import TIERS, NotMeasurable
from webapp.diffs.models import MeasuredDiff
from webapp.diffs.sides import Side
from webapp.diffs.views import parse_sides
from webapp.runs.access import run_for
from webapp.runs.models import Run


@login_required
@require_http_methods(["GET", "POST"])
def measure(request: Request, run_id: uuid.UUID, sides: str) -> HttpResponse:
    """Shows the plan with its cost (GET), or starts the measurement with the chosen tier (POST)."""
    run, _ = run_for(request, run_id, "act")
    old, new = parse_sides(request, run, sides)
    try:
        _check(old, new)
        if request.method == "POST":
            tier = request.POST.get("tier", "quick")
            if tier not in TIERS:
                raise NotMeasurable("Choose quick or full.")
            found = service.start(old, new, tier, by=request.user)
            record(
                request,
                new.run.team,
                "diff.measured",
                f"{sides} of run {new.run.pk}",
                {"tier": tier, "jobs": found.hunks.exclude(program=None).count()},
            )
            return _shown(request, new.run, found)
        planned = service.plan(old, new)
    except NotMeasurable as error:
        return render(request, "diffs/_refused.html", {"message": str(error)})
    tiers = [{"name": tier, "seconds": planned.seconds(tier), "each": planned.job_seconds[tier]} for tier in TIERS]
    return render(request, "diffs/_plan.html", {"plan": planned, "tiers": tiers, "run": run, "sides": sides, "old": old, "new": new})


@login_required
@require_GET
def progress(request: Request, run_id: uuid.UUID, measured_id: uuid.UUID) -> HttpResponse:
    run, found = _measured(request, run_id, measured_id)
    return _shown(request, run, found)


@login_required
@require_POST
def cancel(request: Request, run_id: uuid.UUID, measured_id: uuid.UUID) -> HttpResponse:
    run, found = _measured(request, run_id, measured_id, "act")
    service.cancel(found)
    record(request, run.team, "diff.cancelled", f"{found.sides} of run {run.pk}", {})
    return _shown(request, run, found)


def _check(old: Side, new: Side) -> None:
    for side in (old, new):
        if side.candidate is None or side.candidate.verification is None or side.candidate.verification.status != "passed":
            name = side.label[0].upper() + side.label[1:]
            raise NotMeasurable(f"{name} has not passed a verification: only two programs that passed are measured against each other.")
    if old.run.task.sha != new.run.task.sha or old.run.team_id != new.run.team_id:
        raise NotMeasurable("These programs are for different tasks or of different teams: choose two of the same task.")


def _measured(request: Request, run_id: uuid.UUID, measured_id: uuid.UUID, right: Right = "view") -> tuple[Run, MeasuredDiff]:
    run, _ = run_for(request, run_id, right)
    found = get_object_or_404(MeasuredDiff, pk=measured_id, team=run.team)
    if found.run_id != run.pk and found.run.task_id != run.task_id:
        raise Http404("no such measurement")
    return run, found


def _shown(request: Request, run: Run, found: MeasuredDiff) -> HttpResponse:
    _, can_act = run_for(request, run.pk)
    return render(request, "diffs/_measured.html", measured_context(run, found) | {"can_control": can_act})
