"""Serves a run's bytes: artefacts by hash, and the task and programs as files."""

from __future__ import annotations

import re
import uuid

from django.contrib.auth.decorators import login_required
from django.db.models import TextField
from django.db.models.functions import Cast
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotModified
from django.shortcuts import get_object_or_404
from django.views.decorators.http import require_GET

from webapp.accounts.access import has_right
from webapp.runs import artefacts
from webapp.runs.access import run_for
from webapp.runs.models import Artefact, Candidate, Run

SHOWN = {"application/json", "text/plain", "text/x-python", "text/x-c++src", "application/x-stitchwork-timeline"}
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def file_name(text: str, fallback: str) -> str:
    """Return a version of the name that is safe in a header and on any file system."""
    return _UNSAFE.sub("-", text).strip("-.")[:80] or fallback


def source_response(source: str | bytes, name: str) -> HttpResponse:
    response = HttpResponse(source, content_type="text/x-python; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    response["X-Content-Type-Options"] = "nosniff"
    return response


@login_required
@require_GET
def artefact(request: HttpRequest, run_id: uuid.UUID, sha: str) -> HttpResponse:
    """Serve one artefact of the run's team. It is never served as HTML, because untrusted content must not run in our origin."""
    run, _ = run_for(request, run_id)
    stored = get_object_or_404(Artefact, team=run.team, sha=sha)
    if not has_right(request, run.team_id, "view") and not belongs_to(run, sha):
        raise Http404("no such artefact")  # publishing a run must not expose artefacts of the team's other runs
    if request.headers.get("If-None-Match") == f'"{sha}"':
        return HttpResponseNotModified()
    media_type = stored.media_type if stored.media_type in SHOWN else "application/octet-stream"
    response = HttpResponse(artefacts.read(stored), content_type=f"{media_type}; charset=utf-8" if media_type.startswith("text/") else media_type)
    disposition = "inline" if media_type in SHOWN and "download" not in request.GET else "attachment"
    response["Content-Disposition"] = f'{disposition}; filename="{file_name(stored.name, sha[:12])}"'
    response["X-Content-Type-Options"] = "nosniff"
    response["Content-Security-Policy"] = "default-src 'none'; sandbox"
    response["ETag"] = f'"{sha}"'
    response["Cache-Control"] = "private, max-age=31536000, immutable"
    return response


def belongs_to(run: Run, sha: str) -> bool:
    """Return whether one of the run's events refers to the artefact."""
    return run.events.annotate(text=Cast("payload", TextField())).filter(text__contains=f'"{sha}"').exists()


@login_required
@require_GET
def task_source(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    run, _ = run_for(request, run_id)
    return source_response(run.task.source, "task.py")


@login_required
@require_GET
def candidate_program(request: HttpRequest, run_id: uuid.UUID, number: int) -> HttpResponse:
    run, _ = run_for(request, run_id)
    candidate = get_object_or_404(Candidate.objects.select_related("program"), run=run, number=number)
    return source_response(artefacts.read(candidate.program), f"{file_name(run.task.name, 'program')}-candidate-{number}.py")


@login_required
@require_GET
def best_program(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    run, _ = run_for(request, run_id)
    if run.best_candidate is None:
        raise Http404("this run has no passing program")
    candidate = get_object_or_404(Candidate.objects.select_related("program"), run=run, number=run.best_candidate)
    return source_response(artefacts.read(candidate.program), "best.py")
