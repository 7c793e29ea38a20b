"""Prepares a report for the page, which shows every figure with its unit, interval and measurement method."""

from __future__ import annotations

import uuid
from collections import Counter
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from verifier.jobs import JobResult
from verifier.report import Comparison, Report
from webapp.runs import artefacts
from webapp.runs.models import Candidate, Run, Verification
from webapp.runs.pages.blockplot import BlockPlot, block_plot

BASELINES = {
    "eager": "PyTorch eager",
    "compile": "torch.compile",
    "compile-max-autotune": "torch.compile, max-autotune",
    "compile-reduce-overhead": "torch.compile, reduce-overhead",
    "cuda-graph": "eager in a CUDA graph",
}


@dataclass(frozen=True)
class Comparing:
    comparison: Comparison
    label: str
    plot: BlockPlot | None


@dataclass(frozen=True)
class Evidence:
    """Everything known about one verification.

    `report` is None until the verification ends. If the host failed, `report` stays None and `error` describes the failure.
    """

    verification: Verification
    status: str  # the verdict, or "queued" or "running" until there is one
    report: Report | None = None
    error: str = ""
    comparisons: tuple[Comparing, ...] = ()

    @property
    def failed_trials(self) -> list[Any]:
        return [trial for trial in self.report.trials if not trial.ok] if self.report else []

    @property
    def trials(self) -> list[Any]:
        """Return the trials, failed ones first."""
        return sorted(self.report.trials, key=lambda trial: trial.ok) if self.report else []

    @property
    def norm(self) -> str:
        """Return the norm that most checked calls use, so the page needs to state it only once."""
        norms = Counter(trial.norm for trial in self.report.trials if trial.norm) if self.report else Counter[str]()
        return norms.most_common(1)[0][0] if norms else ""

    @property
    def shapes(self) -> list[str]:
        """Return the shapes of the task's own inputs, as recorded at admission. The figures apply to these shapes."""
        admitted = Verification.objects.filter(run=self.verification.run_id, kind="admit", result__isnull=False).select_related("result").first()
        try:
            admission = JobResult.model_validate_json(artefacts.read(admitted.result)).admission if admitted and admitted.result else None
        except ValidationError:
            return []
        return admission.shapes if admission else []

    @property
    def device_ms(self) -> float | None:
        """Return the kernels' GPU time in one observed call, or None on a CPU or if the kernels were not observed."""
        report = self.report
        if report is None or not report.kernels or not report.environment.device.startswith("cuda"):
            return None
        return sum(kernel.ms for kernel in report.kernels)

    @property
    def environment(self) -> list[tuple[str, object]]:
        """Return names and values for a table, omitting anything that the host lacks."""
        if self.report is None:
            return []
        env = self.report.environment
        pairs = [
            ("Device", f"{env.device_name} ({env.device})"),
            ("Device model", env.device_model),
            ("CPU threads", env.threads),
            ("PyTorch", env.torch),
            ("Python", env.python),
            ("Compiler", env.compiler),
            ("CUDA", env.cuda),
            ("Driver", env.driver),
            ("Compute capability", env.capability),
        ]
        return [(name, value) for name, value in pairs if value not in (None, "")]


def evidence_of(verification: Verification) -> Evidence:
    if verification.result is None:
        return Evidence(verification, verification.status or verification.state)
    try:
        result = JobResult.model_validate_json(artefacts.read(verification.result))
    except ValidationError:
        return Evidence(verification, "infrastructure_error", error="the stored result cannot be read by this version")
    report = result.report
    if report is None:
        return Evidence(verification, "infrastructure_error", error=result.error or "the verifier gave no report")
    comparisons = report.timing.comparisons if report.timing else []
    return Evidence(
        verification,
        report.status,
        report,
        result.error,
        tuple(Comparing(c, BASELINES.get(c.baseline, c.baseline), block_plot(c)) for c in comparisons),
    )


def verifications_of(run: Run, candidate: Candidate) -> list[Verification]:
    """Return all verifications of the candidate, oldest first."""
    found = run.verifications.filter(kind="verify", candidate_number=candidate.number).select_related("result", "timeline", "device")
    return list(found.order_by("queued_at"))


def chosen_verification(run: Run, candidate: Candidate, wanted: str | None) -> tuple[Verification | None, list[Verification]]:
    """Return the verification requested by id or, failing that, the decisive one or, failing that, the latest."""
    everything = verifications_of(run, candidate)
    try:
        asked = uuid.UUID(wanted) if wanted else None
    except ValueError:
        asked = None
    by_id = {v.id: v for v in everything}
    known = (by_id[pk] for pk in (asked, candidate.verification_id) if pk is not None and pk in by_id)
    chosen = next(known, everything[-1] if everything else None)
    return chosen, everything
