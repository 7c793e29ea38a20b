"""Profiles of language models as the orchestrator has them, a button to try each, and what was spent by profile, team and month."""

from __future__ import annotations

from datetime import timedelta

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db.models import Count, Q, Sum
from django.db.models.functions import TruncMonth
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from webapp.accounts.access import writable_teams
from webapp.llm.jobs import ask_to_try
from webapp.llm.models import Announcement, ModelCall, Profile

GIVEN_UP = timedelta(minutes=5)  # a try that has said nothing for so long is over
MONTHS = 12


@login_required
@require_GET
def models(request: HttpRequest) -> HttpResponse:
    context = {"announced": Announcement.objects.filter(pk=1).first(), "profiles": _profiles(), "may_try": bool(writable_teams(request.user))}
    if request.htmx:
        return render(request, "llm/_profiles.html", context)
    return render(request, "llm/models.html", context | {"spend": _spend(request), "months": MONTHS})


@login_required
@require_POST
def try_model(request: HttpRequest, name: str) -> HttpResponse:
    """Ask an orchestrator to try the profile; the page shows what it found as soon as it is there."""
    if not Profile.objects.filter(pk=name).exists():
        raise Http404("no such profile")
    if not writable_teams(request.user):
        messages.error(request, "Only members of a team may try a profile: a try may cost money.")
        return redirect("llm:models")
    ask_to_try(name)
    if request.htmx:
        announced = Announcement.objects.filter(pk=1).first()
        return render(request, "llm/_profiles.html", {"announced": announced, "profiles": _profiles(), "may_try": True})
    return redirect("llm:models")


def _profiles() -> list[dict]:
    late = timezone.now() - GIVEN_UP
    return [{"profile": p, "trying": bool(p.trying_since and p.trying_since > late)} for p in Profile.objects.order_by("name")]


def _spend(request: HttpRequest) -> list[dict]:
    """One row a month, team and profile, the latest month first."""
    since = (timezone.now() - timedelta(days=31 * MONTHS)).replace(day=1)
    rows = (
        ModelCall.objects.filter(team__in=request.user.teams.all(), at__gte=since)
        .annotate(month=TruncMonth("at"))
        .values("month", "team__name", "profile")
        .annotate(
            exchanges=Count("pk", filter=Q(failed=False)), failures=Count("pk", filter=Q(failed=True)), runs=Count("run", distinct=True),
            input=Sum("input_tokens"), output=Sum("output_tokens"), counted=Sum("tokens"), cost=Sum("dollars"),
            unpriced=Count("pk", filter=Q(dollars=None, failed=False)), seconds=Sum("seconds"),
        )
        .order_by("-month", "team__name", "profile")
    )  # fmt: skip
    return list(rows)
