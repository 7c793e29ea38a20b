"""Creates, lists, revokes and opens share links."""

from __future__ import annotations

import uuid

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from webapp.review import guests, shares
from webapp.review.models import Share
from webapp.runs.access import run_for


@login_required
@never_cache
@require_http_methods(["GET", "POST"])
def run_shares(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """Lists the links of one run. `?place=` is the page that a new link opens."""
    run, _ = run_for(request, run_id, "own")
    given = request.POST if request.method == "POST" else request.GET
    place = given.get("place", "") or reverse("runs:run", args=[run.pk])
    problem = ""
    if request.method == "POST":
        days = given.get("days", "")
        try:
            made = shares.make(request, run, place=place, days=int(days) if days.isdecimal() else 0, comments="comments" in given)
            return redirect(reverse("review:shares", args=[run.pk]) + f"?made={made.pk}")
        except shares.ShareRefused as error:
            problem = str(error)
    rows = [
        {"share": share, "id": str(share.pk), "address": request.build_absolute_uri(reverse("review:shared", args=[shares.token_of(share)]))}
        for share in Share.objects.filter(run=run).select_related("created_by").order_by("-created_at")
    ]
    context = {
        "run": run, "place": place, "problem": problem, "made": request.GET.get("made"), "rows": rows, "lifetimes": shares.LIFETIMES,
        "days": given.get("days", "7"), "comments": "comments" in given,
    }  # fmt: skip
    return render(request, "review/shares.html", context, status=422 if problem else 200)


@login_required
@require_POST
def revoke(request: HttpRequest, run_id: uuid.UUID, share_id: uuid.UUID) -> HttpResponse:
    run, _ = run_for(request, run_id, "own")
    share = get_object_or_404(Share.objects.select_related("run", "team"), pk=share_id, run=run)
    shares.revoke(request, share)
    messages.success(request, "This link no longer works.")
    return redirect("review:shares", run_id=run.pk)


@never_cache
@require_GET  # excludes HEAD, because a link preview is not a visit
def shared(request: HttpRequest, token: str) -> HttpResponse:
    """Opens the page that the link was created for. The visitor needs no account and is not signed in."""
    share = shares.of_token(token)
    if share is None or share.state != "open":
        return guests.ended(request, share)
    guests.hold(request, share)
    return guests.untold(redirect(shares.opened(share)))
