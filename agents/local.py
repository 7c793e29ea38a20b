"""Runs the verifier inside this process, without a database or a queue. This module writes the `verification.*` events itself."""

from __future__ import annotations

import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from agents.events import ArtefactRef, NewEvent
from agents.payloads import Payload, VerificationFinished, VerificationQueued, VerificationStage, artefact
from agents.ports import Journal
from verifier.jobs import Job, JobResult, StageEvent, VerifyJob
from verifier.report import Comparison, Environment, Report

OnStage = Callable[[StageEvent], Awaitable[None]]
DETAIL_LIMIT = 2000  # maximum number of characters of a stage's detail or message in an event; the result has the full text


class Client(Protocol):
    """The interface of `verifier.client.Verifier`."""

    async def run(self, job: Job, on_stage: OnStage | None = None) -> JobResult: ...

    async def ready(self) -> Environment: ...

    async def figures(self) -> dict[str, float]: ...


class LocalVerifier:
    """A `VerifierPort` for one client. A second request for a finished key returns the earlier result."""

    def __init__(self, journal: Journal, client: Client, device: str):
        self.journal, self.client, self.device = journal, client, device

    async def run(self, job: Job, *, key: str, span: str, candidate: str | None = None) -> JobResult:
        attempt = 1
        for event in await self.journal.load():
            match event.body:
                case VerificationFinished() as done if done.key == key:
                    return await recalled(self.journal, done)
                case VerificationQueued() as before if before.key == key:
                    attempt = before.attempt + 1
        verification = str(uuid.uuid5(uuid.NAMESPACE_URL, f"stitchwork:{self.journal.run}:{key}"))
        number = int(candidate) if candidate is not None else None
        queued = VerificationQueued(
            key=key, job=job.kind, candidate=number, verification=verification, attempt=attempt, tier=tier_of(job),
            request=await self.journal.put(job.model_dump_json().encode(), "application/json", "job.json"),
        )  # fmt: skip
        await self._append(queued, span)
        begun = time.monotonic()

        async def on_stage(stage: StageEvent) -> None:
            await self._append(stage_payload(stage, key, attempt), span)

        result = await self.client.run(job, on_stage)
        seconds = round(time.monotonic() - begun, 3)
        found = await self.journal.put(result.model_dump_json().encode(), "application/json", "result.json")
        timeline = None
        if result.timeline:
            timeline = await self.journal.put(result.timeline, "application/x-stitchwork-timeline", "timeline.stwtl")
        done = VerificationFinished(key=key, job=job.kind, candidate=number, verification=verification, result=found, seconds=seconds)
        await self._append(with_findings(done, result, timeline), span)
        return result

    async def describe(self) -> dict[str, Any]:
        """Returns the judge's description of its device for `DeviceFigures.of`, or only the device name if the judge does not start."""
        try:
            return {**(await self.client.ready()).model_dump(mode="json"), **await self.client.figures()}
        except OSError:
            return {"device": self.device}

    async def missing(self) -> str:
        try:
            await self.client.ready()
        except OSError as error:
            return str(error) or f"{self.device} cannot be used here"
        return ""

    async def _append(self, payload: Payload, span: str) -> None:
        await self.journal.append([NewEvent.of(payload, span, "verifier")])


async def recalled(journal: Journal, done: VerificationFinished) -> JobResult:
    """Returns a job's result, restored from the run's artefacts, together with the bytes of its timeline."""
    result = JobResult.model_validate_json(await journal.get(artefact(done.result)))
    if done.timeline is not None:
        result.timeline = await journal.get(done.timeline.sha)
    return result


def stage_payload(stage: StageEvent, key: str, attempt: int) -> VerificationStage:
    shown = stage.model_copy(update={"detail": stage.detail[:DETAIL_LIMIT]})
    return VerificationStage(key=key, attempt=attempt, **shown.model_dump())


def tier_of(job: Job) -> str | None:
    """Returns the tier of a verification; other jobs have none."""
    return job.tier if isinstance(job, VerifyJob) else None


def with_findings(done: VerificationFinished, result: JobResult, timeline: ArtefactRef | None) -> VerificationFinished:
    """Returns the event of a finished job with its findings added. A queued and a local verifier produce the same event."""
    more: dict[str, Any] = {"timeline": timeline} if timeline is not None else {}
    if result.error:
        more |= {"status": "infrastructure_error", "message": result.error[:DETAIL_LIMIT]}
    elif result.report is not None:
        more |= verdict_of(result.report)
    elif result.admission is not None:
        message = "; ".join(p.message for p in result.admission.problems)[:DETAIL_LIMIT]
        more |= {"ok": result.admission.ok, "flags": list(result.admission.flags), "message": message}
    return done.having(**more)


def verdict_of(report: Report) -> dict[str, Any]:
    """Returns the parts of a report needed for lists and rankings."""
    best = best_baseline(report)
    return {
        "status": report.status,
        "message": report.message[:DETAIL_LIMIT],
        "tier": report.tier,
        "speedup": report.speedup,
        "gain": report.timing.rival.speedup if report.timing and report.timing.rival else None,  # gain over the parent program
        "program_class": report.program_class,
        "own_share": report.own_share,
        "program_ms": report.timing.program_ms if report.timing else None,
        "faster": report.faster,
        "floor_fraction": report.floor_fraction,
        "best_baseline": best.baseline if best else None,
        "best_baseline_speedup": best.speedup if best else None,
    }


def best_baseline(report: Report) -> Comparison | None:
    """Returns the comparison with the fastest measured baseline, or None."""
    comparisons = report.timing.comparisons if report.timing else []
    return min(comparisons, key=lambda c: c.speedup.ratio, default=None)
