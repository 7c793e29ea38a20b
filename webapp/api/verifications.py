"""Verification of a given program, for outside agents, scripts and continuous integration.

A verification is a run of the "verify" workflow.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import datetime
from typing import Any, Literal, cast

from django.http import Http404, HttpResponse
from ninja import Router, Schema
from pydantic import ConfigDict, Field

from agents.choices.workflows import OWN_PROGRAM
from agents.events import State
from agents.settings import Budget, Settings
from verifier.jobs import JobResult
from verifier.report import Class, Finding, Report, Stage, Status, Tier, Trial
from verifier.source import Problem as SourceProblem
from verifier.task import Mode, Precision
from webapp.accounts.models import Team
from webapp.accounts.signed_in import Request
from webapp.api.calls.caller import needs
from webapp.api.calls.fields import Source, Text
from webapp.api.calls.idempotency import HEADER_PARAMETER, once
from webapp.api.calls.problems import refusals
from webapp.api.run_schemas import DEVICE, Asked, page_of_run
from webapp.api.starting import check_settings, program_of, source_of, start, team_of
from webapp.runs import artefacts
from webapp.runs.access import run_for
from webapp.runs.models import Run, Verification
from webapp.runs.pages.evidence import evidence_of

router = Router(tags=["verifications"])
ERRORS = refusals(400, 401, 403, 404, 409, 422, 429)
MOST_TRIALS = 5
MOST_PROBLEMS = 20
VERIFIER_SECONDS = 1800.0  # enough for a full verification of a large model, with torch.compile, on a slow device


class NewProgram(Asked):
    """A program for a task, which is specified by its id or its source."""

    task: uuid.UUID | None = Field(default=None, description="Id of a task of the team.")
    task_source: Source | None = Field(default=None, description="Source of the task: `class Model`, `get_inputs()`, `get_init_inputs()`.")
    program_source: Source = Field(description="Source of the program: `class ModelNew` with the constructor and forward of `Model`.")
    device: str = Field(default="cpu", pattern=DEVICE, description='"cpu", "cuda" (any GPU) or one GPU such as "cuda:0".')
    precision: Precision = Field(default="fp32-strict", description="The error bound of the program and the arithmetic of its baselines.")
    mode: Mode = Field(default="train", description="train() as KernelBench leaves it, or eval().")
    title: Text = Field(default="", max_length=140, description="Shown in lists of runs.")


class NewVerification(NewProgram):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"task_source": "class Model(nn.Module): …", "program_source": "class ModelNew(nn.Module): …", "tier": "quick"}]
        }
    )

    tier: Tier = Field(
        default="quick",
        description='"quick": against eager PyTorch, for iterating. "full": every baseline in fresh processes, the only one that is a result.',
    )


class Against(Schema):
    baseline: str = Field(description="eager, compile, compile-max-autotune (or compile-reduce-overhead instead) or cuda-graph.")
    speedup: float = Field(description="Time of the baseline divided by that of the program: above 1 is faster.")
    low: float = Field(description="Lower bound of the 95 % interval.")
    high: float
    program_ms: float
    baseline_ms: float


class VerificationResult(Schema):
    """The verdict as one object. It includes times only if the verdict is `passed`."""

    id: uuid.UUID = Field(description="Also the id of its run: events, candidates and artefacts are under /runs/{id}.")
    page: str = Field(description="Address of its page.")
    state: State
    done: bool
    passed: bool | None = Field(description="Null until it is done.")
    verdict: Status | Literal["not_measured"] | None = Field(
        description="`not_measured`: the task was not admitted, or the run was cancelled; `message` says why."
    )
    message: str = Field(description="What happened, where, and what to try.")
    next: str = Field(description="What to do now, in a sentence.")
    tier: Tier
    precision: Precision
    mode: Mode
    device: str = Field(description="As requested.")
    device_name: str | None = Field(description="Where it was measured.")
    device_model: str | None
    faster: bool = Field(description="The lower bound against eager is above 1.")
    speedup: Against | None = Field(description="Against eager PyTorch.")
    comparisons: list[Against] = Field(description="Against every baseline of the tier.")
    program_class: Class | None
    own_share: float | None = Field(description="Share of the time in the program's own kernels.")
    floor_fraction: float | None = Field(description="Share of what the device allows at best (roofline), from 0 to 1.")
    flags: list[str] = Field(description="Flags of the task: trivial, stochastic.")
    clock: int | None = Field(description="Version of the verifier's clock; times by different ones are not comparable.")
    untried: list[str] = Field(description="Trials that were planned but not made, each with the reason.")
    problems: list[SourceProblem] = Field(description="Errors of parsing and compiling, with lines of the program.")
    findings: list[Finding] = Field(description="Evidence about integrity, with lines of the program; `refuse` ends in `rejected`.")
    failed_trials: list[Trial] = Field(description=f"Calls whose result was wrong, at most {MOST_TRIALS}.")
    compiler_output: str
    stages: list[Stage]
    ahead: int | None = Field(description="Verifications before it in the queue; null once it has begun.")
    report: uuid.UUID | None = Field(description="Id of the whole report: GET /runs/{id}/reports/{report}.")
    created_at: datetime
    finished_at: datetime | None


def prepared(request: Request, given: NewProgram, tier: Tier) -> tuple[Team, Callable[[], Run]]:
    """Return the team, and a function that queues the verification.

    Raises a refusal for any error in the request before anything is created.
    """
    team = team_of(request)
    source, name = source_of(request, given.task, given.task_source)
    program = program_of(given.program_source)
    settings = Settings(
        workflow=OWN_PROGRAM.name,
        device=given.device,
        precision=given.precision,
        mode=given.mode,
        tier=tier,
        budget=Budget(candidates=OWN_PROGRAM.programs, verifier_seconds=VERIFIER_SECONDS, seconds=2 * VERIFIER_SECONDS),
    )
    check_settings(settings, "body.")
    return team, lambda: start(request, source=source, title=given.title or name, settings=settings, program=program)


@router.post(
    "",
    response={201: VerificationResult, **ERRORS},
    operation_id="verify_program",
    summary="Verify a program",
    openapi_extra={"parameters": [HEADER_PARAMETER]},
)
def verify_program(request: Request, given: NewVerification) -> HttpResponse:
    """Queues a verification for the device. Poll the verification until `done` is true, or follow /runs/{id}/events/stream."""
    needs(request, "verify")
    team, begin = prepared(request, given, given.tier)
    return once(request, team, lambda: (201, result_of(begin(), request)))


@router.get("/{run_id}", response={200: VerificationResult, **ERRORS}, operation_id="get_verification", summary="The verdict")
def get_verification(request: Request, run_id: uuid.UUID) -> Any:
    """Returns the state of the verification and, once it is `done`, its verdict."""
    needs(request, "read", "verify")
    run, _ = run_for(request, run_id)
    if run.searches:
        raise Http404("no such verification")
    return result_of(run, request)


def result_of(run: Run, request: Request) -> VerificationResult:
    settings = Settings.model_validate(run.settings)
    rows = list(run.verifications.select_related("result").order_by("queued_at"))
    counted = next((v for v in reversed(rows) if v.kind == "verify" and v.state == "finished" and v.result_id), None)
    report = evidence_of(counted).report if counted else None
    done = run.state == "finished"
    verdict = (report.status if report else "not_measured") if done else None
    return VerificationResult(
        id=run.pk,
        page=page_of_run(run.pk, request),
        state=cast(State, run.state),
        done=done,
        passed=verdict == "passed" if done else None,
        verdict=verdict,
        message=(report.message if report else "") or run.reason,
        next=_next(run, report, verdict, settings.tier),
        tier=settings.tier,
        precision=settings.precision,
        mode=settings.mode,
        device=settings.device,
        device_name=report.environment.device_name if report else None,
        device_model=report.environment.device_model if report else None,
        ahead=_ahead(rows),
        problems=(report.problems if report else _admission_problems(rows))[:MOST_PROBLEMS],
        report=counted.pk if report and counted else None,
        created_at=run.created_at,
        finished_at=run.finished_at,
        **_measured(report),
    )


def _measured(report: Report | None) -> dict[str, Any]:
    comparisons = [
        Against(
            baseline=c.baseline, speedup=c.speedup.ratio, low=c.speedup.low, high=c.speedup.high, program_ms=c.program_ms, baseline_ms=c.baseline_ms
        )
        for c in (report.timing.comparisons if report and report.timing else [])
    ]
    return {
        "faster": bool(report and report.faster),
        "speedup": next((c for c in comparisons if c.baseline == "eager"), None),
        "comparisons": comparisons,
        "program_class": report.program_class if report else None,
        "own_share": report.own_share if report else None,
        "floor_fraction": report.floor_fraction if report else None,
        "flags": report.flags if report else [],
        "clock": report.timing.clock if report and report.timing else None,
        "untried": report.untried if report else [],
        "findings": report.findings if report else [],
        "failed_trials": [trial for trial in report.trials if not trial.ok][:MOST_TRIALS] if report else [],
        "compiler_output": report.build.compiler_output if report and report.build and report.status != "passed" else "",
        "stages": report.stages if report else [],
    }


def _admission_problems(rows: list[Verification]) -> list[SourceProblem]:
    """Return the reasons why the task was not admitted."""
    admitted = next((v for v in rows if v.kind == "admit" and v.result_id), None)
    admission = JobResult.model_validate_json(artefacts.read(admitted.result)).admission if admitted and admitted.result else None
    return admission.problems if admission and not admission.ok else []


def _ahead(rows: list[Verification]) -> int | None:
    waiting = next((v for v in rows if v.state == "queued"), None)
    if waiting is None:
        return None
    return Verification.objects.filter(state="queued", queue=waiting.queue, queued_at__lt=waiting.queued_at).count()


ADVICE = {
    "passed": "",
    "wrong_result": "Read `failed_trials`: which call, which output, how large the error against its bound.",
    "build_failed": "Read `problems` and `compiler_output`: the program's lines that do not compile.",
    "crashed": "Read `message`; check launch bounds and indices for the shapes in `failed_trials`.",
    "timed_out": "Look for an endless loop or a deadlock; quick checks have a shorter time limit.",
    "rejected": "Read `findings` with severity `refuse`: what the program must not do, and in which line.",
    "inconclusive": "The clocks disagreed or the device was busy: verify again.",
    "infrastructure_error": "The host failed, not the program: verify again, and look at GET /api/v1/devices.",
    "not_measured": "Read `message` and `problems`; they are about the task or the run, not about the program.",
}


def _next(run: Run, report: Report | None, verdict: str | None, tier: str) -> str:
    if verdict is None:
        if run.state == "paused":
            return "The run is paused: resume or cancel it."
        return "Wait: follow the event stream, or ask again in some seconds."
    if report is not None and report.host_busy:
        return "Other work kept the host busy; nothing was found wrong with the program. Verify again when the host is quieter."
    if verdict != "passed" or report is None:
        return ADVICE[verdict]
    if not report.faster:
        return "It is correct, but not faster than eager: look at its kernels and at the timeline."
    return "It is correct and faster. Verify it with tier `full` for a result." if tier == "quick" else "It is correct and faster: this is a result."
