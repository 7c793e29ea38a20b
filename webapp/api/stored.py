"""The artefacts that a run's events refer to by hash, including timelines."""

from __future__ import annotations

import uuid
from typing import Any

from django.db.models import TextField
from django.db.models.functions import Cast
from django.http import Http404, HttpResponse, HttpResponseNotModified
from ninja import Router, Schema
from pydantic import Field

from agents.journal import references
from agents.payloads import ProfileAttached
from webapp.accounts.signed_in import Request
from webapp.api.calls.caller import needs
from webapp.api.calls.fields import Sha
from webapp.api.calls.problems import refusals
from webapp.runs import artefacts
from webapp.runs.access import run_for
from webapp.runs.models import Artefact, Run
from webapp.runs.pages.views_artefact import belongs_to, file_name

router = Router(tags=["artefacts"])
ERRORS = refusals(401, 403, 404, 422, 429)
BYTES = {
    "responses": {200: {"description": "The bytes.", "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}}
}


class Stored(Schema):
    sha: str = Field(description="SHA-256 of the bytes: its name.")
    media_type: str
    bytes: int
    name: str = Field(description="A file name for people.")
    seq: int = Field(description="The first event that names it.")


class Artefacts(Schema):
    artefacts: list[Stored]


class DrawnTimeline(Schema):
    sha: str = Field(description="Artefact with the timeline; docs/reference/profiling.md says how to read it.")
    candidate: int | None = Field(description="Null: of the reference.")
    tool: str | None = Field(description="nsys, cupti or torch-profiler.")


class Timelines(Schema):
    timelines: list[DrawnTimeline]


@router.get("/{run_id}/artefacts", response={200: Artefacts, **ERRORS}, operation_id="list_artefacts", summary="List artefacts")
def list_artefacts(request: Request, run_id: uuid.UUID) -> dict[str, Any]:
    """Returns everything to which the run's events refer. Together with the events, the artefacts form the complete run."""
    needs(request, "read")
    run, _ = run_for(request, run_id)
    names = ("sha", "media_type", "bytes", "name", "seq")
    return {"artefacts": [dict(zip(names, row, strict=True)) for row in _referenced(run)]}


Reference = tuple[str, str, int, str, int]


def _referenced(run: Run) -> list[Reference]:
    """Return (sha, media type, bytes, name, seq) for each artefact, where seq is that of the first event that names it.

    The events are searched in Python, because jsonb would refuse text that a model may well produce (\\u0000).
    """
    found: dict[str, Reference] = {}
    naming = run.events.annotate(text=Cast("payload", TextField())).filter(text__contains='"media_type"').order_by("seq")
    for event in naming.iterator(chunk_size=1000):
        for sha, ref in references([event]).items():
            found.setdefault(sha, (sha, ref.media_type, ref.bytes, ref.name, event.seq))
    return list(found.values())


@router.get(
    "/{run_id}/artefacts/{sha}", response={200: None, **ERRORS}, operation_id="get_artefact", summary="Download an artefact", openapi_extra=BYTES
)
def get_artefact(request: Request, run_id: uuid.UUID, sha: Sha) -> HttpResponse:
    """Returns the artefact's bytes. Artefacts never change, because their name is their hash."""
    needs(request, "read")
    run, _ = run_for(request, run_id)
    stored = Artefact.objects.filter(team=run.team_id, sha=sha).first()
    if stored is None or not belongs_to(run, sha):
        raise Http404("no such artefact in this run")
    if request.headers.get("If-None-Match") == f'"{sha}"':
        return HttpResponseNotModified()
    response = HttpResponse(artefacts.read(stored), content_type="application/octet-stream")
    response["Content-Disposition"] = f'attachment; filename="{file_name(stored.name, sha[:12])}"'
    response["Content-Security-Policy"] = "default-src 'none'; sandbox"
    response["ETag"] = f'"{sha}"'
    response["Cache-Control"] = "private, max-age=31536000, immutable"
    return response


@router.get("/{run_id}/timelines", response={200: Timelines, **ERRORS}, operation_id="list_timelines", summary="List timelines")
def list_timelines(request: Request, run_id: uuid.UUID) -> dict[str, Any]:
    """Returns the timelines of the reference and of candidates. Each timeline can be downloaded as an artefact."""
    needs(request, "read")
    run, _ = run_for(request, run_id)
    found: dict[str, dict[str, Any]] = {}
    for row in run.events.filter(kind=ProfileAttached.kind).order_by("seq"):
        said = row.said(ProfileAttached)
        if said.timeline is not None:
            found[said.timeline.sha] = {"sha": said.timeline.sha, "candidate": said.candidate, "tool": said.tool}
    return {"timelines": list(found.values())}
