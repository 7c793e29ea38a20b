"""Shows one candidate: its change, whether it is correct and fast, and the evidence."""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_GET
from pydantic import ValidationError

from agents.payloads import CandidateProposed
from verifier.jobs import JobResult, Profile
from verifier.report import Report
from webapp.runs import artefacts, headline
from webapp.runs.access import run_for
from webapp.runs.models import Candidate, Run
from webapp.runs.pages import additions
from webapp.runs.pages.counter_rows import counter_rows, not_measured
from webapp.runs.pages.evidence import chosen_verification, evidence_of
from webapp.runs.pages.expectations import expectation_of

TABS = {"diff": "Diff", "report": "Report", "timeline": "Timeline", "kernels": "Kernels", "source": "Program"}


@login_required
@require_GET
def candidate_page(request: HttpRequest, run_id: uuid.UUID, number: int) -> HttpResponse:
    run, can_control = run_for(request, run_id)
    context = candidate_context(request, run, number, request.GET.get("tab", "diff"))
    numbers = list(run.candidates.order_by("number").values_list("number", flat=True))
    at = numbers.index(number)
    context |= {
        "can_control": can_control,
        "tabs": TABS,
        "previous": numbers[at - 1] if at else None,
        "next": numbers[at + 1] if at + 1 < len(numbers) else None,
    }
    return render(request, "runs/candidate.html", context)


@login_required
@require_GET
def candidate_fragment(request: HttpRequest, run_id: uuid.UUID, number: int, tab: str) -> HttpResponse:
    """Render one tab without the page around it, for the right pane of the live page."""
    if tab not in TABS:
        raise Http404("no such tab")
    run, _ = run_for(request, run_id)
    response = render(request, f"runs/_{tab}.html", candidate_context(request, run, number, tab) | {"pane": True})
    response["Cache-Control"] = "private, no-cache"
    return response


def candidate_context(request: HttpRequest, run: Run, number: int, tab: str) -> dict[str, Any]:
    """Return the context shared by the templates of all tabs, plus what the shown tab needs."""
    candidate = get_object_or_404(Candidate.objects.select_related("program", "timeline", "profile"), run=run, number=number)
    tab = tab if tab in TABS else "diff"
    chosen, verifications = chosen_verification(run, candidate, request.GET.get("verification"))
    evidence = evidence_of(chosen) if chosen else None
    report = evidence.report if evidence else None
    source = artefacts.read(candidate.program).decode("utf-8", "replace")
    context = {
        "run": run,
        "candidate": candidate,
        "tab": tab,
        "evidence": evidence,
        "report": report,
        "found": headline.of_verification(chosen),
        "verifications": verifications,
        "program_name": f"candidate-{number}.py",
        "source": source,
        "expectation": expectation_of(run, candidate),
        "author": author_of(run, number),
    }
    if tab == "kernels":
        context |= kernels_context(candidate, report) | {"compared": compared_with(run, candidate)}
    elif tab in additions.TABS:
        context |= additions.TABS[tab](additions.Shown(request, run, candidate, report, source))
    return context


def author_of(run: Run, number: int) -> str:
    """Return the profile and model that wrote the program; "" for the built-in Coder and for people."""
    said = (event.body for event in run.events.filter(kind=CandidateProposed.kind).order_by("seq"))
    return next((one.author for one in said if isinstance(one, CandidateProposed) and one.candidate == number), "")


def kernels_context(candidate: Candidate, report: Report | None) -> dict[str, Any]:
    """Return the profiler's digest and the compiler's resource usage per kernel as one table."""
    profile = None
    if candidate.profile is not None:
        try:
            profile = stored_profile(artefacts.read(candidate.profile))
        except ValidationError:
            pass  # a newer version wrote the profile; the kernels in the report are still shown
    resources = report.build.resources if report and report.build else []
    names = list(dict.fromkeys(name for row in resources for name in row))
    kernels = [(kernel, kernel.mean_us / 1000) for kernel in profile.kernels] if profile else []
    launched = any(kernel.grid for kernel, _ in kernels)
    return {
        "profile": profile,
        "profiled": kernels,
        "launched": launched,
        "counter_rows": counter_rows(profile),
        "counters_missing": not_measured(profile),
        "resource_names": names,
        "resource_rows": [[row.get(name) for name in names] for row in resources],
    }


def compared_with(run: Run, candidate: Candidate) -> dict[str, Any] | None:
    """Return the most informative candidate to compare rooflines with: the run's best or, for the best candidate, its parent."""
    if run.best_candidate is not None and run.best_candidate != candidate.number:
        return {"number": run.best_candidate, "why": "the best of the run"}
    return {"number": candidate.parent_number, "why": "its parent"} if candidate.parent_number is not None else None


def stored_profile(data: bytes) -> Profile | None:
    """Parse a stored profile, which is either on its own or inside its job's result."""
    try:
        return Profile.model_validate_json(data)
    except ValidationError:
        return JobResult.model_validate_json(data).profile
