"""The candidates of a run: each program with its verdict, its source and its report."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any

from django.http import Http404, HttpResponse
from ninja import Router, Schema
from pydantic import Field

from verifier.report import Report
from webapp.accounts.signed_in import Request
from webapp.api.calls.caller import needs
from webapp.api.calls.fields import Number
from webapp.api.calls.problems import CallRefused, refusals
from webapp.runs import artefacts
from webapp.runs.access import run_for
from webapp.runs.models import Candidate, Run, Verification
from webapp.runs.pages.evidence import evidence_of
from webapp.runs.services import candidate_source

router = Router(tags=["candidates"])
ERRORS = refusals(401, 403, 404, 422, 429)
PYTHON = {"responses": {200: {"description": "The source.", "content": {"text/x-python": {"schema": {"type": "string"}}}}}}


class CandidateVerdict(Schema):
    """A summary of one verification of a candidate; the report has the details."""

    id: uuid.UUID = Field(description="Id of the verification, which also names its report.")
    state: str = Field(description="queued, running, finished")
    status: str | None = Field(
        description="Verdict: passed, wrong_result, build_failed, crashed, timed_out, rejected, inconclusive, infrastructure_error."
    )
    tier: str | None = Field(description='"full": every baseline, fresh processes. "quick": eager alone, for search.')
    device_name: str | None
    device_model: str | None
    speedup: float | None = Field(description="Against eager PyTorch, on this device; null unless it passed.")
    speedup_low: float | None = Field(description="Lower bound of its 95 % interval.")
    speedup_high: float | None
    best_baseline: str | None = Field(description="The fastest of the baselines that were measured.")
    best_baseline_speedup: float | None
    program_ms: float | None = Field(description="Median time of a call in milliseconds.")
    program_class: str | None = Field(description="custom, mixed or orchestration: how much of the time its own kernels take.")
    own_share: float | None
    flags: list[str]
    queued_at: datetime
    finished_at: datetime | None


class CandidateRow(Schema):
    number: int
    parent: int | None = Field(description="Number of the candidate from which it was derived.")
    title: str
    changes: str = Field(description="How it differs from its parent, in a sentence.")
    step: str
    strategy: str
    sha: str = Field(description="SHA-256 of the program.")
    best: bool = Field(description="The run's result.")
    created_at: datetime
    verification: CandidateVerdict | None = Field(description="The verification that counts: tier full before quick.")


class CandidateDetail(CandidateRow):
    verifications: list[CandidateVerdict] = Field(description="All, oldest first.")
    timeline: str | None = Field(description="Artefact with its timeline.")
    profile: str | None = Field(description="Artefact with its profile.")


class Candidates(Schema):
    candidates: list[CandidateRow] = Field(description="By number.")


def measured(v: Verification) -> CandidateVerdict:
    fields = {name: getattr(v, name) for name in CandidateVerdict.model_fields}
    words = ("status", "tier", "device_name", "device_model", "best_baseline", "program_class")
    return CandidateVerdict.model_validate(fields | {name: fields[name] or None for name in words})


def _row(run: Run, c: Candidate) -> dict[str, Any]:
    return {
        "number": c.number,
        "parent": c.parent_number,
        "title": c.title,
        "changes": c.changes,
        "step": c.step,
        "strategy": c.strategy,
        "sha": c.sha,
        "best": run.best_candidate == c.number,
        "created_at": c.created_at,
        "verification": measured(c.verification) if c.verification else None,
    }


def _candidate(run: Run, number: int) -> Candidate:
    found = run.candidates.select_related("verification", "timeline", "profile", "program").filter(number=number).first()
    if found is None:
        raise Http404(f"no candidate {number} in this run")
    return found


@router.get("/{run_id}/candidates", response={200: Candidates, **ERRORS}, operation_id="list_candidates", summary="List candidates")
def list_candidates(request: Request, run_id: uuid.UUID) -> Any:
    """Returns all programs that the run has proposed, with their verdicts."""
    needs(request, "read")
    run, _ = run_for(request, run_id)
    return {"candidates": [_row(run, c) for c in run.candidates.select_related("verification").order_by("number")]}


@router.get("/{run_id}/candidates/{number}", response={200: CandidateDetail, **ERRORS}, operation_id="get_candidate", summary="Look at a candidate")
def get_candidate(request: Request, run_id: uuid.UUID, number: Number) -> Any:
    needs(request, "read")
    run, _ = run_for(request, run_id)
    c = _candidate(run, number)
    verifications = run.verifications.filter(kind="verify", candidate_number=number).order_by("queued_at")
    more = {"timeline": c.timeline.sha if c.timeline else None, "profile": c.profile.sha if c.profile else None}
    return _row(run, c) | more | {"verifications": [measured(v) for v in verifications]}


@router.get(
    "/{run_id}/candidates/{number}/program",
    response={200: None, **ERRORS},
    operation_id="get_program",
    summary="A candidate's source",
    openapi_extra=PYTHON,
)
def get_program(request: Request, run_id: uuid.UUID, number: Number) -> HttpResponse:
    """Returns the program: `class ModelNew`, which runs unmodified in a project and in KernelBench's harness."""
    needs(request, "read")
    run, _ = run_for(request, run_id)
    return python(artefacts.read(_candidate(run, number).program), f"candidate-{number}.py")


@router.get(
    "/{run_id}/best", response={200: None, **ERRORS}, operation_id="get_best_program", summary="The best program's source", openapi_extra=PYTHON
)
def get_best_program(request: Request, run_id: uuid.UUID) -> HttpResponse:
    """Returns the run's best program, or 404 if no program passed."""
    needs(request, "read")
    run, _ = run_for(request, run_id)
    source = candidate_source(run, run.best_candidate) if run.best_candidate is not None else None
    if source is None:
        ended = run.state == "finished"
        raise CallRefused(
            404, "No program of this run passed." if ended else "The run has not named its best program yet.", run.reason or "Follow its events."
        )
    return python(source.encode(), "best.py")


@router.get("/{run_id}/task", response={200: None, **ERRORS}, operation_id="get_run_task", summary="The task's source", openapi_extra=PYTHON)
def get_run_task(request: Request, run_id: uuid.UUID) -> HttpResponse:
    needs(request, "read")
    run, _ = run_for(request, run_id)
    return python(run.task.source.encode(), "task.py")


@router.get(
    "/{run_id}/candidates/{number}/report", response={200: Report, **ERRORS}, operation_id="get_candidate_report", summary="A candidate's report"
)
def get_candidate_report(request: Request, run_id: uuid.UUID, number: Number) -> Any:
    """Returns the decisive report (from the full tier, if there is one): everything that was measured, and how it was measured."""
    needs(request, "read", "verify")
    run, _ = run_for(request, run_id)
    if run.searches:
        needs(request, "read")
    return report_of(_candidate(run, number).verification)


@router.get("/{run_id}/reports/{verification_id}", response={200: Report, **ERRORS}, operation_id="get_report", summary="One report")
def get_report(request: Request, run_id: uuid.UUID, verification_id: uuid.UUID) -> Any:
    """Returns the report of one verification of the run, given an id from a candidate's `verifications`."""
    needs(request, "read")
    run, _ = run_for(request, run_id)
    return report_of(run.verifications.filter(kind="verify", pk=verification_id).first())


def report_of(verification: Verification | None) -> Report:
    if verification is None:
        raise Http404("no such report")
    evidence = evidence_of(verification)
    if evidence.report is None:
        raise CallRefused(404, f"There is no report: {evidence.error or 'the verification has not ended'}.", "Follow the run's events until it has.")
    return evidence.report


def python(source: bytes, name: str) -> HttpResponse:
    response = HttpResponse(source, content_type="text/x-python; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response
