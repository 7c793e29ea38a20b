"""The pages of a task and of a result, the result's badge, and the switch that opens a team's published results to everybody."""

from __future__ import annotations

import uuid

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_POST

from webapp.accounts import audit
from webapp.accounts.access import has_right, require
from webapp.accounts.signed_in import Request
from webapp.leaderboard.entries import named
from webapp.leaderboard.filters import AGAINST, Filters
from webapp.leaderboard.listing import standing_verdicts, visible
from webapp.leaderboard.models import EVERYONE, Result
from webapp.leaderboard.shown.badge import badge, badge_of
from webapp.leaderboard.shown.beside import beside
from webapp.leaderboard.shown.headlines import of_result
from webapp.leaderboard.shown.opening import close_team, open_team, open_where_published, opened_teams, signed_in
from webapp.leaderboard.shown.task_page import MOST_ROWS, pictures, standing, tried_by
from webapp.runs.headline import NAMES
from webapp.tasks.models import Task

SECONDS_KEPT = 300  # how long a README's host may cache a badge


@open_where_published
@require_GET
def task_page(request: Request, task_id: uuid.UUID) -> HttpResponse:
    """Show a task. `?setup=<id>` selects the device, precision and mode. The default is the setup with the most results."""
    task = Task.objects.filter(pk=task_id).first()
    results = visible(request).filter(subject__sha=task.sha) if task else Result.objects.none()
    # The viewer knows another team's task only through a visible result, which also supplies its name.
    if task is None or not (has_right(request, task.team_id, "view") or results.filter(task=task).exists()):
        raise Http404("no such task")
    found = standing(results, request.GET)
    context = {
        "task": task,
        "found": found,
        "lines": found.lines[:MOST_ROWS],
        "more": len(found.lines) - MOST_ROWS,
        "entries": tried_by(found),
        "pictures": pictures(found),
        "own": has_right(request, task.team_id, "view"),
        "signed_in": signed_in(request),
    }
    return render(request, "leaderboard/task.html", context)


@open_where_published
@require_GET
def suites_beside(request: Request) -> HttpResponse:
    """Compare suites. `?suites=<key>,<key>` selects the suites. The filters are those of the leaderboard."""
    filters = Filters.of_page(request.GET)
    asked = request.GET.get("suites", "").replace("\0", "")[:1000]
    found = beside(request, filters, asked)
    context = {"found": found, "filters": filters, "against_name": AGAINST[filters.against], "setup": found.boards[0].setup if found.boards else None}
    return render(request, "leaderboard/beside.html", context)


@open_where_published
@require_GET
def result_page(request: Request, run_id: uuid.UUID) -> HttpResponse:
    """Show a result at the permanent URL of its run. A rebuild of the ranking renumbers the results, but a run keeps its id."""
    result = _result(request, run_id)
    told = result.provenance
    measured = sorted(((NAMES.get(name, name), found) for name, found in told.comparisons.items()), key=lambda pair: pair[1]["baseline_ms"])
    page = request.build_absolute_uri(reverse("leaderboard:shown", args=[run_id]))
    picture = request.build_absolute_uri(reverse("leaderboard:badge", args=[run_id]))
    context = {
        "result": result,
        "told": told,
        "headline": of_result(result),
        "name": named(result.entry),
        "measured": measured,
        "verdict": standing_verdicts([result]).get(result.pk),
        "environment": [(name, value) for name, value in told.environment.items() if value and name != "report"],
        "badge": {"picture": picture, "markdown": f"[![Stitchwork: {_plain(result.task.name)}]({picture})]({page})"},
        "everybody": _open(result),
        "member": has_right(request, result.team_id, "view"),
        "signed_in": signed_in(request),
    }
    return render(request, "leaderboard/shown.html", context)


def _plain(name: str) -> str:
    """Escape a name so that it has no meaning in Markdown."""
    return "".join(" " if letter in "[]()<>\\`*_!|#" else letter for letter in name)


@require_GET
def result_badge(request: Request, run_id: uuid.UUID) -> HttpResponse:
    """Serve the badge. The response for a missing result is the same as for one that is hidden from the viewer."""
    result = visible(request).filter(run=run_id).select_related("provenance", "setup").first()
    picture = badge_of(result) if result else badge("no public result", "idle")
    answer = HttpResponse(picture, content_type="image/svg+xml", status=200 if result else 404)
    public = result is not None and _open(result)
    answer["Cache-Control"] = f"public, max-age={SECONDS_KEPT}" if public else "private, no-store"
    answer["X-Content-Type-Options"] = "nosniff"
    return answer


def _result(request: Request, run_id: uuid.UUID) -> Result:
    found = visible(request).filter(run=run_id).select_related("run", "task", "team", "provenance", "setup", "entry__team").first()
    if found is None:
        raise Http404("no such result")
    return found


def _open(result: Result) -> bool:
    return result.visibility == EVERYONE and opened_teams().filter(team=result.team_id).exists()


@login_required
@require_POST
def set_opening(request: Request) -> HttpResponse:
    """Open the current team's published results to people who don't sign in, or close them again."""
    require(request, request.team, "own")
    opens = request.POST.get("open") == "1"
    if opens:
        open_team(request.team, request.user)
    else:
        close_team(request.team)
    audit.record(request, request.team, "results.opened" if opens else "results.closed", request.team.name, {"open": opens})
    said = "are now public: everybody can see them without signing in" if opens else "now need an account again"
    messages.success(request, f"Published results of {request.team.name} {said}.")
    return redirect("leaderboard:suites")
