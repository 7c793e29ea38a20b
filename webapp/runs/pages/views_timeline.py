"""Shows a timeline on its own page, alone or with a second one on the same scale, and exports it."""

from __future__ import annotations

import json
import uuid
import zlib
from collections.abc import Iterator
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.views.decorators.http import require_GET
from pydantic import ValidationError

from agents.payloads import ProfileAttached, VerificationFinished
from verifier.jobs import Profile
from verifier.profiling.chrome_trace import chrome_trace
from verifier.profiling.timeline import Timeline
from webapp.runs import artefacts
from webapp.runs.access import run_for
from webapp.runs.models import Artefact, Candidate, Run
from webapp.runs.pages.counter_rows import counters_by_kernel, not_measured
from webapp.runs.pages.views_artefact import belongs_to, file_name
from webapp.runs.pages.views_candidate import stored_profile
from webapp.streaming import sent

MEDIA_TYPE = "application/x-stitchwork-timeline"
REFERENCE = "the reference"


@login_required
@require_GET
def timeline_page(request: HttpRequest, run_id: uuid.UUID, sha: str) -> HttpResponse:
    """Show a timeline. `?against=<sha>` or `?against=reference` adds another of the run's timelines above it, on the same scale."""
    run, _ = run_for(request, run_id)
    stored = timeline_of(run, sha)
    others = other_timelines(run, sha)
    wanted = request.GET.get("against", "")
    if wanted == "reference":
        wanted = next((one["sha"] for one in others if one["name"] == REFERENCE), "")
    against = timeline_of(run, wanted) if wanted not in ("", sha) else None
    candidate = run.candidates.filter(timeline=stored).order_by("-number").first()
    response = render(
        request,
        "runs/timeline.html",
        {
            "run": run,
            "candidate": candidate,
            "stored": stored,
            "against": against,
            "against_name": name_of(run.candidates.filter(timeline=against).order_by("-number").first()) if against else "",
            "others": others,
            "name": name_of(candidate),
            "lanes": json.dumps([lane(run, one) for one in (against, stored) if one is not None]),
        },
    )
    # The tab opened by "Open in Perfetto" must keep its reference to this page, because this page hands over the trace through it.
    response["Cross-Origin-Opener-Policy"] = "same-origin-allow-popups"
    return response


@login_required
@require_GET
def timeline_trace(request: HttpRequest, run_id: uuid.UUID, sha: str) -> HttpResponseBase:
    """Stream the timeline in Chrome's trace format. A million events take up 200 MB as JSON, and a tenth of that when compressed."""
    run, _ = run_for(request, run_id)
    stored = timeline_of(run, sha)
    try:
        timeline = Timeline.from_bytes(artefacts.read(stored))
    except ValueError as error:
        return HttpResponse(f"The timeline cannot be exported: {error}.\n", status=422, content_type="text/plain; charset=utf-8")
    candidate = run.candidates.filter(timeline=stored).order_by("-number").first()
    pieces = chrome_trace(timeline, f"{run.title}: {name_of(candidate)}")
    packed = "gzip" in request.headers.get("Accept-Encoding", "")
    response = StreamingHttpResponse(sent(gzipped(pieces) if packed else pieces), content_type="application/json")
    if packed:
        response["Content-Encoding"] = "gzip"
    label = f"candidate-{candidate.number}" if candidate else "reference"
    response["Content-Disposition"] = f'attachment; filename="{file_name(run.title, "run")}-{label}.trace.json"'
    response["X-Content-Type-Options"] = "nosniff"
    response["Vary"] = "Accept-Encoding, Cookie"
    return response


def timeline_of(run: Run, sha: str) -> Artefact:
    """Return a timeline that one of the run's events refers to. Raises `Http404` for any other timeline."""
    stored = get_object_or_404(Artefact, team=run.team, sha=sha, media_type=MEDIA_TYPE)
    if not belongs_to(run, sha):
        raise Http404("no such timeline")
    return stored


def name_of(candidate: Candidate | None) -> str:
    return f"candidate {candidate.number}" if candidate else REFERENCE


def lane(run: Run, stored: Artefact) -> dict[str, Any]:
    """Return the data that static/js/timeline/ needs to draw one timeline."""
    candidate = run.candidates.select_related("profile").filter(timeline=stored).order_by("-number").first()
    profile = profile_beside(run, stored)
    return {
        "url": reverse("runs:artefact", args=[run.id, stored.sha]),
        "sha": stored.sha,
        "name": name_of(candidate),
        "own": own_names(candidate),
        "kernels": counters_by_kernel(profile),
        "uncounted": f"No hardware counters: {not_measured(profile)}." if not_measured(profile) else "",
    }


def profile_beside(run: Run, stored: Artefact) -> Profile | None:
    """Return the profile recorded with this timeline (for the reference too), or None if none can be read."""
    attached = (row.said(ProfileAttached) for row in run.events.filter(kind=ProfileAttached.kind).order_by("-seq"))
    named = next((said.profile.sha for said in attached if said.profile and said.timeline and said.timeline.sha == stored.sha), None)
    profile = Artefact.objects.filter(team=run.team, sha=named).first() if named else None
    if profile is None:
        return None
    try:
        return stored_profile(artefacts.read(profile))
    except ValidationError:  # a newer version wrote it
        return None


def own_names(candidate: Candidate | None) -> list[str] | None:
    """Return the program's own kernel names.

    The list is empty for the reference. The result is None if no profile says which kernels are the program's own. (Newer recordings include the
    names.)
    """
    if candidate is None:
        return []
    if candidate.profile is None:
        return None
    try:
        kernels = json.loads(artefacts.read(candidate.profile))["kernels"]
        return [kernel["name"] for kernel in kernels if kernel.get("own")]
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def other_timelines(run: Run, sha: str) -> list[dict[str, str]]:
    """Return the other timelines that the run's events refer to, the reference's first."""
    found: dict[str, str] = {}
    for row in run.events.filter(kind__in=[ProfileAttached.kind, VerificationFinished.kind]).order_by("seq"):
        said = row.body
        if isinstance(said, ProfileAttached | VerificationFinished) and said.timeline is not None and said.timeline.sha != sha:
            found[said.timeline.sha] = REFERENCE if said.candidate is None else f"candidate {said.candidate}"
    return sorted(
        ({"sha": key, "name": name} for key, name in found.items()), key=lambda one: (one["name"] != REFERENCE, len(one["name"]), one["name"])
    )


def gzipped(pieces: Iterator[bytes]) -> Iterator[bytes]:
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)  # 31: with a gzip header
    for piece in pieces:
        if packed := packer.compress(piece):
            yield packed
    yield packer.flush()
