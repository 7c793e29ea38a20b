"""A timeline on a page of its own."""

from __future__ import annotations

import uuid

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.views.decorators.http import require_GET

from webapp.runs.access import run_for
from webapp.runs.models import Artefact, Run
from webapp.runs.views_artefact import belongs_to

MEDIA_TYPE = "application/x-stitchwork-timeline"


@login_required
@require_GET
def timeline_page(request: HttpRequest, run_id: uuid.UUID, sha: str) -> HttpResponse:
    run, _ = run_for(request.user, run_id)
    stored = get_object_or_404(Artefact, team=run.team, sha=sha, media_type=MEDIA_TYPE)
    if not belongs_to(run, sha):
        raise Http404("no such timeline")
    candidate = run.candidates.filter(timeline=stored).order_by("-number").first()
    others = other_timelines(run, sha)
    return render(
        request,
        "runs/timeline.html",
        {
            "run": run,
            "candidate": candidate,
            "stored": stored,
            "others": others,
            "config": {
                "url": reverse("runs:artefact", args=[run.id, sha]),
                "name": f"candidate {candidate.number}" if candidate else "the reference",
            },
        },
    )


def other_timelines(run: Run, sha: str) -> list[dict]:
    """Every other timeline of the run, the reference's first, as its events name them."""
    found: dict[str, str] = {}
    for payload in run.events.filter(kind__in=["profile.attached", "verification.finished"]).order_by("seq").values_list("payload", flat=True):
        reference, number = payload.get("timeline"), payload.get("candidate")
        if isinstance(reference, dict) and reference.get("sha") not in (None, sha):
            found[reference["sha"]] = "the reference" if number is None else f"candidate {number}"
    return sorted(
        ({"sha": key, "name": name} for key, name in found.items()), key=lambda one: (one["name"] != "the reference", len(one["name"]), one["name"])
    )
