"""Pages of individual results: the list behind every figure, the visibility of each result, and the link to its evidence."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponse, HttpResponseBadRequest
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_GET, require_POST

from webapp.accounts import audit
from webapp.accounts.access import has_right, require, teams_with
from webapp.accounts.signed_in import Request
from webapp.leaderboard import listing, paging, visibility
from webapp.leaderboard.entries import named
from webapp.leaderboard.filters import Filters, is_uuid
from webapp.leaderboard.models import EVERYONE, PRIVATE, VISIBILITY, Result
from webapp.leaderboard.ranking import known
from webapp.leaderboard.shown.headlines import of_result
from webapp.leaderboard.shown.opening import open_where_published, signed_in
from webapp.leaderboard.views import page_context
from webapp.ui.tags import whisker_scale


@open_where_published
@require_GET
def results(request: Request) -> HttpResponse:
    filters, place = Filters.read(request.GET), listing.Place.read(request.GET)
    found = listing.with_evidence(listing.found(request, filters, place))
    page = (paging.ranked if place.task else paging.newest)(found, request.GET, place.run if is_uuid(place.run) else "")
    rows = page.results
    verdicts = listing.standing_verdicts(rows)
    owned, acting = set(teams_with(request, "own").values_list("pk", flat=True)), set(teams_with(request, "act").values_list("pk", flat=True))
    headlines = {row.pk: of_result(row) for row in rows}
    lines = [
        {
            "result": row,
            "name": named(row.entry),
            "headline": headlines[row.pk],
            "verdict": verdicts.get(row.pk),
            "may": _choices(row, row.team_id in owned, row.team_id in acting, request.user.pk),
            "highlighted": place.run == str(row.run_id),
        }
        for row in rows
    ]
    context = page_context(request, known(request, filters).board) | {
        "page": page,
        "lines": lines,
        "place": place,
        "states": [{"key": key, "title": title} for key, (title, _) in listing.STATES.items()],
        "scale": whisker_scale([found.first for found in headlines.values() if found.first]),
        "task_name": rows[0].task.name if place.task and rows else "",
        "entry_name": named(rows[0].entry) if place.entry and rows else "",
        "one_task": bool(place.task),
    }
    return render(request, "leaderboard/results.html", context)


def _choices(row: Result, owns: bool, acts: bool, person: int) -> list[tuple[str, str]]:
    """Return the visibility options. Only owners can publish or withdraw a result, and only the person who started the run can keep it out of the
    team's ranking."""
    if owns:
        return VISIBILITY
    if acts and row.maker_id == person and row.visibility != EVERYONE:
        return [choice for choice in VISIBILITY if choice[0] != EVERYONE]
    return []


@open_where_published
@require_GET
def result(request: Request, result_id: int) -> HttpResponse:
    """Redirect to the evidence: the report of the confirmed candidate, or the run if no candidate was confirmed."""
    row = _visible(request, result_id)
    if not signed_in(request):  # only people with an account can open runs
        return redirect("leaderboard:shown", row.run_id)
    if row.candidate is None:
        return redirect("runs:run", row.run_id)
    address = reverse("runs:candidate", args=[row.run_id, row.candidate])
    return redirect(f"{address}?verification={row.verification_id}" if row.verification_id else address)


def _visible(request: Request, result_id: int) -> Result:
    row = listing.visible(request).select_related("run", "team").filter(pk=result_id).first()
    if row is None:
        raise Http404("no such result")
    return row


@login_required
@require_POST
def set_seen_by(request: Request, result_id: int) -> HttpResponse:
    row = _visible(request, result_id)
    require(request, row.team_id, "act")
    wanted = request.POST.get("visibility", "")
    if wanted not in dict(VISIBILITY):
        return HttpResponseBadRequest("`visibility` is private, team or everyone")
    if wanted not in dict(_choices(row, has_right(request, row.team_id, "own"), True, request.user.pk)):
        raise PermissionDenied("Only team owners can publish results or withdraw them; only the person who made a run can hide it from the team.")
    before = row.visibility
    visibility.set_visibility(row.run, wanted)
    detail = {"run": str(row.run_id), "before": before, "after": wanted}
    action = "run.published" if wanted == EVERYONE else "run.withdrawn" if before == EVERYONE else "result.listed"
    audit.record(request, row.team, action, row.run.title, detail)
    said = {PRIVATE: "is visible only to the person who ran it and isn't ranked", EVERYONE: "is visible, with its run, to everyone who can sign in"}
    messages.success(request, f"The result of {row.run.title} {said.get(wanted, 'is visible to its team')}.")
    back = request.POST.get("next", "")
    allowed = url_has_allowed_host_and_scheme(back, allowed_hosts={request.get_host()}, require_https=request.is_secure())
    return redirect(back if allowed else reverse("leaderboard:results"))
