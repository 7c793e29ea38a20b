"""The live page of a run: its frame, its events over HTTP, and its controls."""

from __future__ import annotations

import uuid
from dataclasses import asdict
from typing import Any
from urllib.parse import urlencode

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from agents.orders import BUILT_IN, ROLES, compiled
from agents.settings import Settings
from webapp.accounts.access import user_of
from webapp.accounts.signed_in import Request
from webapp.runs import control, estimates, headline
from webapp.runs.access import run_for
from webapp.runs.models import Run
from webapp.runs.pages.additions import CONFIG
from webapp.runs.pages.decisions import decisions_of
from webapp.runs.pages.views_trace import STRETCH
from webapp.runs.pages.ways import ways_of
from webapp.runs.signals import run_opened
from webapp.runs.trace.reading import events_after
from webapp.runs.workers.standing import standing_of

MAX_EVENTS = 500
ACTIONS = ("pause", "resume", "cancel")


@login_required
@require_GET
def run_page(request: Request, run_id: uuid.UUID) -> HttpResponse:
    run, can_control = run_for(request, run_id)
    context = {"run": run, "can_control": can_control, "config": page_config(run, can_control), "notes": note_readers(run)}
    context |= {"found": headline.headline_of(run), "go_on": headline.to_go_on(run)}
    context |= ways_of(run)
    context |= {"decisions": decisions_of(run)}
    run_opened.send(sender=None, run=run, user=user_of(request))
    return render(request, "runs/run.html", context)


@login_required
@require_GET
def run_decisions(request: Request, run_id: uuid.UUID) -> HttpResponse:
    """Render the current decision tree for a page that shows an older one."""
    run, _ = run_for(request, run_id)
    response = render(request, "runs/_decisions.html", {"run": run, "decisions": decisions_of(run)})
    response["Cache-Control"] = "no-store"
    return response


def note_readers(run: Run) -> dict[str, Any]:
    """Return the agents, keyed by the role to which a note can be addressed, and the instructions that the built-in compiler follows in a note ("" if
    it has no such role)."""
    settings = Settings.model_validate(run.settings)
    by_compiler = compiled(settings)
    players = [(role, role.capitalize(), BUILT_IN if role in by_compiler else getattr(settings, setting)) for role, setting in ROLES.items()]
    return {"players": players, "built_in": [role.capitalize() for role in by_compiler], "all_built_in": len(by_compiler) == len(ROLES)}


def page_config(run: Run, can_control: bool) -> dict[str, Any]:
    """Return the configuration that the page's script needs before the first event."""
    base = reverse("runs:run", args=[run.id])
    return {
        "run": str(run.id),
        "title": run.title,
        "base": base,
        "events": reverse("runs:events", args=[run.id]),
        "trace": reverse("runs:trace", args=[run.id]),
        "search": reverse("runs:search", args=[run.id]),
        "stretch": STRETCH,
        "standing": reverse("runs:standing", args=[run.id]) if can_control else None,
        "usual": usual(run),
        "socket": f"/ws/runs/{run.id}/",
        "control": reverse("runs:control", args=[run.id]) if can_control else None,
        "leaderboard": reverse("leaderboard:table") + "?" + urlencode({"run": str(run.id)}),
        "now": timezone.now().isoformat(),
        "createdAt": run.created_at.isoformat(),
        "lastSeq": run.last_seq,
        **{name: value(run) for name, value in CONFIG.items()},
    }


def usual(run: Run) -> dict[str, Any] | None:
    """Return the usage of similar finished runs, or None if this run has ended or there are too few."""
    if run.state == "finished":
        return None
    known = estimates.of_run(run)
    return {"seconds": known.spent["seconds"].middle, "runs": known.runs} if known.known else None


@login_required
@require_GET
def run_ways(request: Request, run_id: uuid.UUID) -> HttpResponse:
    """Render the branches in columns, without the page around them, for the live page to insert."""
    run, _ = run_for(request, run_id)
    response = render(request, "runs/_ways.html", {"run": run, **ways_of(run)})
    response["Cache-Control"] = "private, no-cache"
    return response


@login_required
@require_GET
def run_standing(request: Request, run_id: uuid.UUID) -> JsonResponse:
    """Return the run's position in the queue for its device or for an orchestrator. `what` is "" if the run has no waiting job."""
    run, _ = run_for(request, run_id)
    response = JsonResponse(asdict(standing_of(run)))
    response["Cache-Control"] = "no-store"
    return response


@login_required
@require_GET
def run_events(request: Request, run_id: uuid.UUID) -> JsonResponse:
    """Return `{"events", "last", "head"}` after `since`: the websocket's data, for a page without a websocket."""
    run, _ = run_for(request, run_id)
    try:
        since = max(0, int(request.GET.get("since", 0)))
        limit = min(MAX_EVENTS, max(1, int(request.GET.get("limit", MAX_EVENTS))))
    except ValueError:
        return JsonResponse({"error": "`since` and `limit` are whole numbers"}, status=400)
    events = events_after(run, since, limit)
    response = JsonResponse(
        {"events": events, "last": events[-1]["seq"] if events else since, "head": max(run.last_seq, events[-1]["seq"] if events else 0)}
    )
    response["Cache-Control"] = "no-store"
    return response


@login_required
@require_POST
def run_control(request: Request, run_id: uuid.UUID) -> HttpResponse:
    """Ask the engine to pause, resume or cancel the run. The engine acts at its next step and confirms with an event."""
    run, can_control = run_for(request, run_id)
    action = request.POST.get("action", "")
    if not can_control:
        return JsonResponse({"error": "only members of the run's team may steer it"}, status=403)
    if action not in ACTIONS:
        return JsonResponse({"error": f"the action is one of {', '.join(ACTIONS)}"}, status=400)
    if run.state == "finished":
        return JsonResponse({"error": "the run has ended"}, status=409)
    control.request_control(run, action, by=request.user)
    if "application/json" in request.headers.get("Accept", ""):
        return JsonResponse({"ok": True}, status=202)
    return redirect("runs:run", run_id=run.id)
