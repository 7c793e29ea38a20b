"""A `VerifierPort` backed by a landscape. Program times are looked up, with measurement noise added; job durations are drawn from a specified
distribution."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agents.arena.landscape import STATUSES, Landscape
from agents.arena.model import Written
from agents.budget import Spent
from agents.events import NewEvent
from agents.local import tier_of
from agents.payloads import VerificationFinished, VerificationQueued
from agents.ports import Journal
from verifier.graph import Capture, Graph
from verifier.jobs import AdmitJob, CaptureJob, Job, JobResult, KernelProfile, Profile, ProfileJob, VerifyJob
from verifier.report import Comparison, Environment, Interval, Protection, Report, Timing
from verifier.task import Admission

if TYPE_CHECKING:
    from agents.run import Engine

# Median seconds on an H200 (bench/results/solve-cuda.json, verifier-time-to-verdict-h200.json); durations are drawn around them with SECONDS_LOG.
SECONDS = {"admit": 4.0, "capture": 4.0, "profile": 12.0, "quick": 9.0, "full": 45.0, "failed": 5.0}
SECONDS_LOG = 0.2
NOISE = 0.01  # relative noise of a median between verifications, in addition to the spread recorded in the table
ENVIRONMENT = Environment(device="landscape", device_name="landscape", device_model="landscape", torch="", python="", compiler="")
PROTECTION = Protection(sandbox="process", layers=[])
ADMITTED = JobResult.model_construct(admission=Admission.model_construct(task="", ok=True, problems=[], flags=[], inputs=[], outputs=[]))
CAPTURED = JobResult.model_construct(capture=Capture.model_construct(task="", mode="train", graph=Graph(inputs=[], nodes=[], outputs=[])))


@dataclass(frozen=True)
class Verified:
    """One verification of a program, and the budget spent by the time it ended."""

    point: int
    status: str
    measured_us: float | None
    tier: str
    calls: int
    programs: int
    seconds: float  # verifier time
    candidate: int


class PlayedVerifier:
    device = "landscape"

    def __init__(self, landscape: Landscape, journal: Journal, seed: int):
        self.landscape, self.journal = landscape, journal
        self._draw = random.Random(seed * 2)
        self._beside = random.Random(seed * 2 + 1)  # separate random stream for the rivals that programs are timed against
        self.engine: Engine | None = None
        self.seconds = 0.0
        self.log: list[Verified] = []

    async def run(self, job: Job, *, key: str, span: str, candidate: str | None = None) -> JobResult:
        number = int(candidate) if candidate is not None else None
        done = VerificationFinished(key=key, job=job.kind, candidate=number, verification=key)
        if isinstance(job, AdmitJob):
            result, seconds = ADMITTED, self._seconds("admit")
            done = done.having(ok=True, flags=[], message="")
        elif isinstance(job, CaptureJob):
            result, seconds = CAPTURED, self._seconds("capture")
        elif isinstance(job, ProfileJob):
            result, seconds = self._profile(job.program_source), self._seconds("profile")
        else:
            assert isinstance(job, VerifyJob), f"no workflow asks a landscape for {job.kind}"
            written = Written.read(job.program_source)
            report = self._report(written, job.tier, Written.read(job.rival_source).point if job.rival_source is not None else None)
            seconds = self._seconds(job.tier if report.status == "passed" else "failed")
            result = JobResult.model_construct(report=report)
            done = done.having(
                status=report.status, message=report.message, tier=job.tier, speedup=report.speedup,
                gain=rival.speedup if (rival := report.timing.rival if report.timing else None) else None,
                program_class=report.program_class, program_ms=report.timing.program_ms if report.timing else None, faster=report.faster,
            )  # fmt: skip
            if number is not None:  # otherwise the verification only compares two programs
                self._note(written, report, job.tier, seconds, number)
        self.seconds += seconds
        queued = VerificationQueued(key=key, job=job.kind, candidate=number, verification=key, attempt=1, tier=tier_of(job))
        await self.journal.append([NewEvent.of(queued, span, "verifier"), NewEvent.of(done.having(seconds=seconds), span, "verifier")])
        return result

    def _note(self, written: Written, report: Report, tier: str, seconds: float, candidate: int) -> None:
        spent = self.engine.ledger.spent if self.engine is not None else Spent()
        us = report.timing.program_ms * 1e3 if report.timing else None
        total = self.seconds + seconds
        self.log.append(Verified(written.point, report.status, us, tier, int(spent.calls), spent.candidates, total, candidate))

    def _seconds(self, kind: str) -> float:
        return round(SECONDS[kind] * self._draw.lognormvariate(0, SECONDS_LOG), 3)

    def _report(self, written: Written, tier: str, rival: int | None = None) -> Report:
        landscape = self.landscape
        status = STATUSES[landscape.status[written.point]]
        if status != "passed" or written.fault:
            return self._failed(written, status)
        spread = landscape.spread[written.point] or 0.0
        noise = math.hypot(NOISE, spread / math.sqrt(6)) / (2 if tier == "full" else 1)
        us = landscape.time(written.point) * math.exp(self._draw.gauss(0, noise))
        comparison = _compared("eager", us, landscape.eager_us, noise)
        timing = Timing.model_construct(program_ms=us / 1e3, bounded=True, clock_agrees=True, round_trip_ms=0.0, comparisons=[comparison], rival=None)
        if rival is not None and landscape.us[rival]:
            timing.rival = _compared("rival", us, landscape.time(rival) * math.exp(self._beside.gauss(0, noise)), noise)
        floor = landscape.floor_us / us if landscape.floor_us else None
        return self._of("passed", tier, timing=timing, faster=comparison.speedup.low > 1, program_class="custom", floor_fraction=floor)

    def _failed(self, written: Written, status: str) -> Report:
        if written.fault:
            status = "build_failed" if written.fault.startswith("program") else "wrong_result"
            message = f"the played model got this wrong: {written.fault}"
        else:
            status = "crashed" if status == "not_measured" else status
            message = f"measured as {status}"
        return self._of(status, "quick", message=message)

    def _of(self, status: str, tier: str, **fields: Any) -> Report:
        common: dict[str, Any] = {
            "task": "",
            "program": "",
            "precision": "fp32-strict",
            "mode": "train",
            "environment": ENVIRONMENT,
            "protection": PROTECTION,
        }
        return Report.model_construct(tier=tier, status=status, **common, **fields)

    def _profile(self, source: str | None) -> JobResult:
        landscape = self.landscape
        if source is None:
            return JobResult.model_construct(profile=_profiled(landscape.eager_us, []))
        point = Written.read(source).point
        us, shares = landscape.us[point] or landscape.eager_us, landscape.shares[point] if landscape.shares else None
        named = list(zip(landscape.groups, shares or [], strict=False))
        return JobResult.model_construct(profile=_profiled(us, [_kernel(group, share, us) for group, share in named if share]))


def _compared(baseline: str, us: float, other_us: float, noise: float) -> Comparison:
    ratio = other_us / us
    interval = Interval.model_construct(ratio=ratio, low=ratio * math.exp(-2 * noise), high=ratio * math.exp(2 * noise))
    return Comparison.model_construct(
        baseline=baseline, speedup=interval, program_ms=us / 1e3, baseline_ms=other_us / 1e3, blocks=6, program_samples_ms=[], baseline_samples_ms=[]
    )


def _kernel(name: str, share: float, us: float) -> KernelProfile:
    return KernelProfile.model_construct(name=name, own=True, calls=1, total_us=share * us, mean_us=share * us, share=share)


def _profiled(us: float, kernels: list[KernelProfile]) -> Profile:
    return Profile.model_construct(task="", program=None, tool="torch-profiler", iterations=1, wall_us_per_iteration=us, kernels=kernels)
