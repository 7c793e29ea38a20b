"""Hands over verifications. An orchestrator requests a verification, a verifier claims it, and it finishes exactly once.

A job contains the verification's id, the attempt and the lease epoch. A worker with an old attempt or epoch has been replaced and must not write
anything. Every step therefore locks the run, then the verification, and checks both numbers in the transaction that writes its events.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from django.db import transaction
from django.utils import timezone
from pydantic import TypeAdapter

from agents.events import NewEvent
from agents.local import stage_payload, tier_of, with_findings
from agents.payloads import VerificationFinished, VerificationQueued
from verifier.jobs import Job, JobResult, StageEvent
from webapp.fleet.models import Device
from webapp.runs import artefacts
from webapp.runs.jobs import enqueue_verification
from webapp.runs.models import Run, Verification
from webapp.runs.trace.append import append

MOST_ATTEMPTS = 2  # a verification that has killed its verifier twice is reported as the host's fault and not retried
JOB: TypeAdapter[Job] = TypeAdapter(Job)


class ClaimLost(RuntimeError):
    """Raised if the verification was given to another worker, has finished, or is no longer needed."""


@dataclass(frozen=True)
class Claim:
    """The right to write events for one verification attempt."""

    verification: uuid.UUID
    attempt: int
    epoch: int


def ask(run: uuid.UUID, job: Job, *, key: str, span: str, candidate: int | None, queue: str, epoch: int) -> uuid.UUID:
    """Queue the job unless it has already been requested under this key, and return the verification's id."""
    with transaction.atomic():
        locked = Run.objects.select_for_update(no_key=True).get(pk=run)
        known = Verification.objects.filter(run=locked, key=key).values_list("pk", flat=True).first()
        if known is not None:
            return known
        request = artefacts.put(locked.team_id, job.model_dump_json().encode(), "application/json", "job.json")
        verification = uuid.uuid4()
        queued = VerificationQueued(
            key=key, job=job.kind, candidate=candidate, verification=str(verification), attempt=1, queue=queue, tier=tier_of(job), request=request
        )
        append(run, [NewEvent.of(queued, span, "verifier")], epoch=epoch)
        enqueue_verification(verification, queue, 1, 0)
        return verification


def start(claim: Claim, device: Device) -> Job:
    """Begin the claimed attempt; raises `ClaimLost`."""
    with transaction.atomic():
        row = _locked(claim)
        waited = (timezone.now() - row.queued_at).total_seconds()
        stage = StageEvent(stage="queue", status="passed", seconds=round(waited, 3), detail=f"taken by {device.name}")
        append(row.run_id, [_stage_event(row, stage)])
        Verification.objects.filter(pk=row.pk).update(device=device)
        assert row.request is not None
        return JOB.validate_json(artefacts.read(row.request))


def report_stages(claim: Claim, stages: list[StageEvent]) -> None:
    with transaction.atomic():
        row = _locked(claim)
        append(row.run_id, [_stage_event(row, stage) for stage in stages])


def finish(claim: Claim, result: JobResult) -> None:
    """Write the report, events and projections exactly once, in one transaction; raises `ClaimLost`."""
    team = Verification.objects.values_list("team_id", flat=True).get(pk=claim.verification)
    found = artefacts.put(team, result.model_dump_json().encode(), "application/json", "result.json")
    timeline = artefacts.put(team, result.timeline, "application/x-stitchwork-timeline", "timeline.stwtl") if result.timeline else None
    with transaction.atomic():
        row = _locked(claim)
        assert row.request is not None
        job = JOB.validate_json(artefacts.read(row.request))
        seconds = round((timezone.now() - (row.started_at or row.queued_at)).total_seconds(), 3)
        done = VerificationFinished(
            key=row.key, job=job.kind, candidate=row.candidate_number, verification=str(row.pk), attempt=claim.attempt, result=found, seconds=seconds
        )
        append(row.run_id, [NewEvent.of(with_findings(done, result, timeline), row.span, "verifier")])


def verifier_died(claim: Claim) -> None:
    """Retry once. After a second death, end the verification and attribute the failure to the host, so that the run can decide what to do."""
    if claim.attempt >= MOST_ATTEMPTS:
        message = f"the verifier died {claim.attempt} times over this job; its log says more"
        finish(claim, JobResult(error=message))
        return
    queue_again(claim, attempt=claim.attempt + 1, reason="the verifier died")


def queue_again(claim: Claim, *, attempt: int, reason: str) -> None:
    """Queue a new job under a new epoch, so that anything the previous worker still writes is refused."""
    with transaction.atomic():
        row = _locked(claim)
        queued = VerificationQueued(
            key=row.key, job=row.kind, candidate=row.candidate_number, verification=str(row.pk), attempt=attempt, queue=row.queue,
            tier=row.tier or None, reason=reason,
        )  # fmt: skip
        append(row.run_id, [NewEvent.of(queued, row.span, "verifier")])
        Verification.objects.filter(pk=row.pk).update(lease_epoch=claim.epoch + 1, device=None)
        enqueue_verification(row.pk, row.queue, attempt, claim.epoch + 1)


def result_of(verification: uuid.UUID) -> JobResult | None:
    """Return the result with the timeline's bytes, or None while the verification is unfinished."""
    row = Verification.objects.select_related("result", "timeline").get(pk=verification)
    if row.state != "finished":
        return None
    if row.result is None:
        return JobResult(error="the verification was stopped before it had a verdict")
    result = JobResult.model_validate_json(artefacts.read(row.result))
    result.timeline = artefacts.read(row.timeline) if row.timeline else None
    return result


def _locked(claim: Claim) -> Verification:
    """Lock the run's row and then the verification's, always in this order, and return the verification; raises `ClaimLost`."""
    run = Verification.objects.filter(pk=claim.verification).values_list("run_id", flat=True).first()
    if run is None:
        raise ClaimLost(f"there is no verification {claim.verification}")
    state = Run.objects.select_for_update(no_key=True).values_list("state", flat=True).get(pk=run)
    row = Verification.objects.select_for_update(no_key=True, of=("self",)).select_related("request").get(pk=claim.verification)
    if state == "finished" or row.state == "finished" or (row.attempt, row.lease_epoch) != (claim.attempt, claim.epoch):
        raise ClaimLost(f"verification {claim.verification} is at attempt {row.attempt}, epoch {row.lease_epoch}, and {row.state}")
    return row


def _stage_event(row: Verification, stage: StageEvent) -> NewEvent:
    return NewEvent.of(stage_payload(stage, row.key, row.attempt), row.span, "verifier")
