"""Actions on the ticked rows of the list, and a person's tags, saved filters and dismissed reasons."""

from __future__ import annotations

import uuid
from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db import transaction
from django.http import HttpResponse, HttpResponseBadRequest, HttpResponseRedirect, QueryDict
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST

from webapp.accounts import audit
from webapp.accounts.access import require
from webapp.accounts.signed_in import Request
from webapp.runs.access import run_for
from webapp.runs.models import Dismissed, Run, SavedFilter, Tag
from webapp.runs.pages.attention import REASONS
from webapp.runs.pages.listing import PAGE_SIZE, Listing
from webapp.ui.figures import counted

MOST_FILTERS = 30


def back(request: Request) -> HttpResponse:
    """Redirect to the form's `next` if it is one of our pages, otherwise to the list."""
    wanted = request.POST.get("next", "")
    allowed = url_has_allowed_host_and_scheme(wanted, allowed_hosts={request.get_host()}, require_https=request.is_secure())
    return HttpResponseRedirect(wanted if allowed and wanted.startswith(("/", "http")) else reverse("runs:list"))


@login_required
@require_POST
def ticked(request: Request) -> HttpResponse:
    """Apply `action` (compare, archive, restore, tag, untag) to the current team's runs listed in `with`."""
    action = request.POST.get("action", "")
    require(request, request.team, "view" if action == "compare" else "act")
    try:
        named = [uuid.UUID(value) for value in request.POST.getlist("with")][:PAGE_SIZE]
    except ValueError:
        return HttpResponseBadRequest("`with` is the id of a run")
    runs = list(Run.objects.filter(team=request.team, pk__in=named))
    tag = " ".join(request.POST.get("tag", "").replace("\0", "").split())[: Tag.LONGEST]
    if not runs:
        messages.error(request, "Tick at least one run first.")
    elif action == "compare":
        return HttpResponseRedirect(f"{reverse('compare:compare')}?{urlencode([('with', str(pk)) for pk in named])}")
    elif action in ("archive", "restore"):
        _archive(request, runs, restore=action == "restore")
    elif action in ("tag", "untag") and not tag:
        messages.error(request, "Type a tag first.")
    elif action == "tag":
        Tag.objects.bulk_create([Tag(team=request.team, run=run, name=tag) for run in runs], ignore_conflicts=True)
        messages.success(request, f"Tagged {counted(len(runs), 'run')} “{tag}”.")
    elif action == "untag":
        Tag.objects.filter(run__in=runs, name=tag).delete()
        messages.success(request, f"Removed “{tag}” from {counted(len(runs), 'run')}.")
    else:
        return HttpResponseBadRequest("the action is compare, archive, restore, tag or untag")
    return back(request)


def _archive(request: Request, runs: list[Run], *, restore: bool) -> None:
    """Archive or restore runs. Nothing is deleted, and unfinished runs stay in the list."""
    taken = [run for run in runs if restore or run.state == "finished"]
    with transaction.atomic():
        Run.objects.filter(pk__in=[run.pk for run in taken]).update(archived_at=None if restore else timezone.now())
        for run in taken:
            audit.record(request, run.team, "run.restored" if restore else "run.archived", run.title, {"run": str(run.pk)})
    if taken:
        messages.success(request, f"{'Restored' if restore else 'Archived'} {counted(len(taken), 'run')}.")
    if left := len(runs) - len(taken):
        messages.error(request, f"{counted(left, 'run')} not finished yet: cancel first, then archive.")


@login_required
@require_POST
def save_filter(request: Request) -> HttpResponse:
    """Save the query string in `query` under `name` for this person in this team, or delete it (`forget`)."""
    name = " ".join(request.POST.get("name", "").replace("\0", "").split())[: SavedFilter.LONGEST]
    mine = SavedFilter.objects.filter(user=request.user, team=request.team)
    if "forget" in request.POST:
        mine.filter(name=name).delete()
        return redirect("runs:list")
    query = Listing.of(QueryDict(request.POST.get("query", "")[:2000])).query[:1000]
    if not name or not query:
        messages.error(request, "Name the filter; an empty one is the whole list.")
    elif mine.exclude(name=name).count() >= MOST_FILTERS:
        messages.error(request, f"You keep {MOST_FILTERS} filters already: forget one first.")
    else:
        SavedFilter.objects.update_or_create(user=request.user, team=request.team, name=name, defaults={"query": query})
    return HttpResponseRedirect(f"{reverse('runs:list')}?{query}")


@login_required
@require_POST
def dismiss(request: Request, run_id: uuid.UUID) -> HttpResponse:
    """Dismiss this reason, so that the run is no longer listed for this person because of it."""
    run, _ = run_for(request, run_id)
    reason = request.POST.get("reason", "")
    if reason not in REASONS:
        return HttpResponseBadRequest(f"the reason is one of {', '.join(REASONS)}")
    Dismissed.objects.get_or_create(user=request.user, run=run, reason=reason)
    return back(request)
