"""The view that judges a candidate."""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_http_methods

from webapp.accounts.signed_in import Request
from webapp.review import standing, verdicts
from webapp.review.models import Verdict
from webapp.runs.access import run_for
from webapp.runs.models import Run

# Explains each verdict to the person who is choosing one.
MEANINGS = {
    Verdict.ACCEPTED: "I checked it and trust the result.",
    Verdict.QUESTIONED: "Something needs explaining first. Removes it from the ranking.",
    Verdict.HACK: "It is fast because it skips the work. Removes it from the ranking.",
    Verdict.RETRACTED: "We no longer stand by it. Removes it from the ranking.",
    Verdict.WITHDRAWN: "Withdraw the current verdict.",
}


@login_required
@require_http_methods(["GET", "POST"])
def verdict(request: Request, run_id: uuid.UUID, number: int) -> HttpResponse:
    """Renders the panel with the current verdict, its history and the form. A POST records a verdict and returns the updated panel."""
    run, may_act = run_for(request, run_id, "act" if request.method == "POST" else "view")
    problem, value, reason = "", request.POST.get("value", ""), request.POST.get("reason", "")
    if request.method == "POST":
        try:
            verdicts.give(request, run, number, value, reason)
            value = reason = ""
        except verdicts.VerdictRefused as error:
            problem = str(error)
        except PermissionDenied as error:
            problem = str(error)
        if not request.htmx and not problem:
            return redirect(_back(request, run, number))
    context = panel(request, run, number, may_act) | {"problem": problem, "chosen": value, "reason": reason}
    # htmx inserts the response regardless of its status, so the form keeps the text that was typed.
    return render(request, "review/_verdict.html" if request.htmx else "review/verdict.html", context)


def panel(request: Request, run: Run, number: int, may_act: bool) -> dict[str, Any]:
    past = standing.history(run, number)
    stands = standing.latest(run.pk, number)
    may_retract = may_act and verdicts.may_retract(request, run)
    lifted = stands is not None and stands.value == Verdict.RETRACTED and not may_retract
    choices = [
        (value, meaning)
        for value, meaning in MEANINGS.items()
        if not lifted
        and (value != Verdict.RETRACTED or may_retract)
        and (value != Verdict.WITHDRAWN or stands)
        and not (stands and value == stands.value)
    ]
    return {"run": run, "number": number, "stands": stands, "history": past, "choices": choices if may_act else [], "unranked": standing.UNRANKED}


def _back(request: Request, run: Run, number: int) -> str:
    wanted = request.POST.get("next", "")
    if url_has_allowed_host_and_scheme(wanted, allowed_hosts={request.get_host()}, require_https=request.is_secure()):
        return wanted
    return reverse("runs:candidate", args=[run.pk, number])
