"""The orchestrator's language model profiles, a button to test each one, and spending by profile, team and month."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from webapp.accounts.access import teams_with, writable_teams
from webapp.accounts.signed_in import Request
from webapp.llm.jobs import ask_to_try
from webapp.llm.models import Announcement, Profile
from webapp.llm.spend import MONTHS, spend_of

GIVEN_UP = timedelta(minutes=5)  # a test without a result after this time is considered to have failed


@login_required
@require_GET
def models(request: Request) -> HttpResponse:
    context = {"announced": Announcement.objects.filter(pk=1).first(), "profiles": _profiles(), "may_try": bool(writable_teams(request))}
    if request.htmx:
        return render(request, "llm/_profiles.html", context)
    return render(request, "llm/models.html", context | {"spend": spend_of(teams_with(request)), "months": MONTHS})


@login_required
@require_POST
def try_model(request: Request, name: str) -> HttpResponse:
    """Asks an orchestrator to test the profile. The page shows the result once it is available."""
    if not Profile.objects.filter(pk=name).exists():
        raise Http404("no such profile")
    if not writable_teams(request):
        messages.error(request, "Only members of a team may try a profile: a try may cost money.")
        return redirect("llm:models")
    ask_to_try(name)
    if request.htmx:
        announced = Announcement.objects.filter(pk=1).first()
        return render(request, "llm/_profiles.html", {"announced": announced, "profiles": _profiles(), "may_try": True})
    return redirect("llm:models")


def _profiles() -> list[dict[str, Any]]:
    late = timezone.now() - GIVEN_UP
    return [{"profile": p, "trying": bool(p.trying_since and p.trying_since > late)} for p in Profile.objects.order_by("name")]
