"""The run list, with runs that need attention, search, filters, and actions to rerun and archive. Cells that change while the list is open are
swapped individually."""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db import transaction
from django.http import HttpResponse, HttpResponseBadRequest
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.views.decorators.http import require_GET, require_POST

from webapp.accounts import alone, audit
from webapp.accounts.access import has_right
from webapp.accounts.lost_access import access_changed
from webapp.accounts.signed_in import Request
from webapp.runs import services
from webapp.runs.access import run_for
from webapp.runs.headline import OUTCOMES
from webapp.runs.models import Run, SavedFilter, Tag
from webapp.runs.pages.attention import asking
from webapp.runs.pages.census import STATES, Census
from webapp.runs.pages.listing import PAGE_SIZE, Listing, page_of, team_runs
from webapp.runs.pages.views_ticked import back
from webapp.ui.figures import plain

LABELS = {
    "result": "Result",
    "outcome": "Outcome over eager",
    "workflow": "Workflow",
    "device": "Device",
    "precision": "Precision",
    "author": "Person",
}
FORMER = {"outcome"}  # offered only where a link or a saved filter uses it


@login_required
@require_GET
def run_list(request: Request) -> HttpResponse:
    listing = Listing.of(request.GET)
    census = Census.of(request.team)
    counts = census.counts
    page = page_of(request.team, listing, census)
    context = {
        "page": page,
        "state": listing.state,
        "text": listing.text,
        "order": listing.order,
        "filters": _filters(listing, census),
        "narrowed": listing.narrowed,
        "tag": listing.tag,
        "tags": sorted(set(Tag.objects.filter(team=request.team).values_list("name", flat=True))),
        "query": listing.query,
        "saved": SavedFilter.objects.filter(user=request.user, team=request.team).order_by("name"),
        # Show this only at the start of the unfiltered list, because a person who searches or pages through it is looking for something else.
        "asking": asking(request.team, request.user) if not listing.query and not listing.after and not listing.before else [],
        "states": [{"name": name, "label": label, "count": counts[name]} for name, (label, _) in STATES.items()],
        "may_act": has_right(request, request.team, "act"),
        "may_publish": has_right(request, request.team, "own"),
        "none_at_all": counts[""] == 0 and counts["archived"] == 0,
        "newest": timezone.now().isoformat(),
        "live": ",".join(str(run.pk) for run in page if run.state != "finished"),
    }
    return render(request, "runs/list.html", context)


def _filters(listing: Listing, census: Census) -> list[dict[str, Any]]:
    """Return the filters that the list offers, each with its options as (value, words)."""
    options = census.choices
    offered = [name for name in LABELS if name in listing.chosen or (name not in FORMER and len(options[name]) > 1)]
    return [
        {
            "name": name,
            "label": LABELS[name],
            "chosen": listing.chosen.get(name, ""),
            "options": [(value, OUTCOMES[value][-1] if name == "result" else plain(value)) for value in options[name]],
        }
        for name in offered
    ]


@login_required
@require_GET
def run_list_live(request: Request) -> HttpResponse:
    """Return the cells of the named runs, which htmx swaps in place, and the number of runs that are newer than the open page."""
    try:
        ids = [uuid.UUID(name) for name in request.GET.get("ids", "").split(",") if name][:PAGE_SIZE]
        since = parse_datetime(request.GET.get("since", ""))
    except ValueError:
        return HttpResponseBadRequest("ids are run ids, since is a time")
    newer = Run.objects.filter(team=request.team, created_at__gt=since).count() if since else 0
    context = {"runs": team_runs(request.team).filter(pk__in=ids), "newer": newer, "counts": Census.of(request.team).counts}
    return render(request, "runs/list_live.html", context)


@login_required
@require_POST
def run_again(request: Request, run_id: uuid.UUID) -> HttpResponse:
    """Start another run of the same task with the same settings."""
    run, _ = run_for(request, run_id, "act")
    try:
        return redirect("runs:run", services.rerun(run, request.user).pk)
    except services.QuotaReached as reached:
        messages.error(request, str(reached))
        return redirect("runs:run", run.pk)


@login_required
@require_POST
def run_archive(request: Request, run_id: uuid.UUID) -> HttpResponse:
    """Archive a finished run, which removes it from the list, or restore it (`restore`). Nothing is deleted."""
    run, _ = run_for(request, run_id, "act")
    restore = "restore" in request.POST
    if run.state != "finished" and not restore:
        messages.error(request, f"{run.title} has not finished: cancel it first, then archive it.")
        return back(request)
    with transaction.atomic():
        Run.objects.filter(pk=run.pk).update(archived_at=None if restore else timezone.now())
        audit.record(request, run.team, "run.restored" if restore else "run.archived", run.title, {"run": str(run.pk)})
    messages.success(request, f"{run.title}: {'back in the list' if restore else 'archived; its results stay where they are published'}.")
    return back(request)


@login_required
@require_POST
def run_publish(request: Request, run_id: uuid.UUID) -> HttpResponse:
    """Publish the run and its results to everyone with an account, or restrict them to the team again (`withdraw`)."""
    run, _ = run_for(request, run_id, "own")
    withdraw = "withdraw" in request.POST
    if not withdraw:
        alone.refuse("published results")
    with transaction.atomic():
        Run.objects.filter(pk=run.pk).update(published=not withdraw)
        audit.record(request, run.team, "run.withdrawn" if withdraw else "run.published", run.title, {"run": str(run.pk)})
        if withdraw:
            access_changed()  # followers outside the team lose access to the run
    messages.success(request, f"{run.title} is now {'visible only to its team' if withdraw else 'published: visible to everyone who can sign in'}.")
    return back(request)
