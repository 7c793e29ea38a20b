"""The verifier in this process's own hands: no database, no queue. It writes the `verification.*` events itself."""

from __future__ import annotations

import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from agents.events import ArtefactRef, NewEvent
from agents.ports import Journal
from verifier.jobs import Job, JobResult, StageEvent, VerifyJob
from verifier.report import Environment, Report

OnStage = Callable[[StageEvent], Awaitable[None]]
DETAIL_LIMIT = 2000  # characters of a stage's detail or a message that an event carries; all of it is in the result


class Client(Protocol):
    """What `verifier.client.Verifier` offers."""

    async def run(self, job: Job, on_stage: OnStage | None = None) -> JobResult: ...

    async def ready(self) -> Environment: ...


class LocalVerifier:
    """`VerifierPort` over one client. Asking again under a key that has finished returns what was found then."""

    def __init__(self, journal: Journal, client: Client, device: str):
        self.journal, self.client, self.device = journal, client, device

    async def run(self, job: Job, *, key: str, span: str, candidate: str | None = None) -> JobResult:
        attempt = 1
        for event in await self.journal.load():
            if event.payload.get("key") != key:
                continue
            if event.kind == "verification.finished":
                return await self._recall(event.payload)
            if event.kind == "verification.queued":
                attempt = event.payload.get("attempt", 1) + 1
        verification = str(uuid.uuid5(uuid.NAMESPACE_URL, f"stitchwork:{self.journal.run}:{key}"))
        number = int(candidate) if candidate is not None else None
        request = (await self.journal.put(job.model_dump_json().encode(), "application/json", "job.json")).model_dump()
        queued = {
            "key": key, "job": job.kind, "candidate": number, "verification": verification, "attempt": attempt, "tier": tier_of(job),
            "request": request,
        }  # fmt: skip
        await self._append("verification.queued", span, queued)
        begun = time.monotonic()

        async def on_stage(stage: StageEvent) -> None:
            payload = {**stage.model_dump(), "key": key, "attempt": attempt, "detail": stage.detail[:DETAIL_LIMIT]}
            await self._append("verification.stage", span, payload)

        result = await self.client.run(job, on_stage)
        seconds = round(time.monotonic() - begun, 3)
        found = await self.journal.put(result.model_dump_json().encode(), "application/json", "result.json")
        timeline = None
        if result.timeline:
            timeline = await self.journal.put(result.timeline, "application/x-stitchwork-timeline", "timeline.stwtl")
        payload = finished_payload(job, result, key=key, candidate=number, verification=verification, found=found, timeline=timeline, seconds=seconds)
        await self._append("verification.finished", span, payload)
        return result

    async def describe(self) -> dict[str, Any]:
        """What the judge says of its device, for `DeviceFigures.of`; only its name where the judge does not start."""
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

    async def _recall(self, payload: dict[str, Any]) -> JobResult:
        result = JobResult.model_validate_json(await self.journal.get(payload["result"]["sha"]))
        if payload.get("timeline"):
            result.timeline = await self.journal.get(payload["timeline"]["sha"])
        return result

    async def _append(self, kind: str, span: str, payload: dict[str, Any]) -> None:
        await self.journal.append([NewEvent(kind=kind, span=span, agent="verifier", payload=payload)])


def tier_of(job: Job) -> str | None:
    """Of a verification; other jobs have none."""
    return job.tier if isinstance(job, VerifyJob) else None


def finished_payload(
    job: Job,
    result: JobResult,
    *,
    key: str,
    candidate: int | None,
    verification: str,
    found: ArtefactRef,
    timeline: ArtefactRef | None,
    seconds: float,
) -> dict[str, Any]:
    """The payload of `verification.finished`: the same for a verifier behind a queue and for one at hand."""
    payload: dict[str, Any] = {
        "key": key, "job": job.kind, "candidate": candidate, "verification": verification, "result": found.model_dump(), "seconds": seconds,
    }  # fmt: skip
    if timeline is not None:
        payload["timeline"] = timeline.model_dump()
    if result.error:
        payload["status"], payload["message"] = "infrastructure_error", result.error[:DETAIL_LIMIT]
    elif result.report is not None:
        payload.update(verdict_of(result.report))
    elif result.admission is not None:
        payload["ok"], payload["flags"] = result.admission.ok, list(result.admission.flags)
        payload["message"] = "; ".join(p.message for p in result.admission.problems)[:DETAIL_LIMIT]
    return payload


def verdict_of(report: Report) -> dict[str, Any]:
    """What lists and rankings need of a report."""
    best = best_baseline(report)
    return {
        "status": report.status,
        "message": report.message[:DETAIL_LIMIT],
        "tier": report.tier,
        "speedup": report.speedup.model_dump() if report.speedup else None,
        "gain": report.timing.rival.speedup.model_dump() if report.timing and report.timing.rival else None,  # over the program it was made from
        "program_class": report.program_class,
        "own_share": report.own_share,
        "program_ms": report.timing.program_ms if report.timing else None,
        "faster": report.faster,
        "floor_fraction": report.floor_fraction,
        "best_baseline": best.baseline if best else None,
        "best_baseline_speedup": best.speedup.model_dump() if best else None,
    }


def best_baseline(report: Report):
    """The comparison with the fastest baseline that was measured, or null."""
    comparisons = report.timing.comparisons if report.timing else []
    return min(comparisons, key=lambda c: c.speedup.ratio, default=None)
