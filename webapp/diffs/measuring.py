"""The verifier's part of a measured diff, which times the newer program with and without one hunk in the same blocks."""

from __future__ import annotations

import logging

from django.db import transaction
from django.utils import timezone

from verifier.client import Verifier
from verifier.jobs import JobResult, StageEvent, VerifyJob
from webapp.database import in_thread
from webapp.diffs.models import MeasuredDiff, MeasuredHunk
from webapp.fleet.models import Device
from webapp.runs import artefacts

log = logging.getLogger(__name__)


async def execute(client: Verifier, device: Device | None, hunk: int, attempt: int) -> None:
    """Runs one attempt. An attempt that was cancelled or superseded writes nothing."""
    job = await in_thread(begin)(hunk, attempt, device)
    if job is None:
        return

    async def on_stage(event: StageEvent) -> None:
        if event.status == "started":
            await in_thread(told)(hunk, attempt, event.stage)

    try:
        result = await client.run(job, on_stage)
    except Exception as error:
        log.exception("hunk %s failed", hunk)
        result = JobResult(error=f"the verifier failed: {type(error).__name__}: {error}"[:1500])
    await in_thread(finish)(hunk, attempt, result)


@transaction.atomic
def begin(hunk: int, attempt: int, device: Device | None) -> VerifyJob | None:
    row = _locked(hunk, attempt)
    if row is None or row.program is None:
        return None
    measured = row.measured
    row.state, row.started_at, row.stage = "running", timezone.now(), "taken"
    row.save(update_fields=["state", "started_at", "stage"])
    if device is not None:
        MeasuredDiff.objects.filter(pk=measured.pk).update(device_name=device.name)
    newer = artefacts.get(measured.team_id, measured.new_sha).decode("utf-8", "surrogatepass")
    chosen = {name: getattr(measured, name) for name in ("tier", "precision", "mode", "backward")}
    older = artefacts.read(row.program).decode("utf-8", "surrogatepass")
    return VerifyJob.model_validate({"task_source": measured.run.task.source, "program_source": older, "rival_source": newer} | chosen)


def told(hunk: int, attempt: int, stage: str) -> None:
    MeasuredHunk.objects.filter(pk=hunk, attempt=attempt, state="running").update(stage=stage[:60])


@transaction.atomic
def finish(hunk: int, attempt: int, result: JobResult) -> None:
    row = _locked(hunk, attempt)
    if row is None:
        return
    team = row.measured.team_id
    stored = artefacts.put(team, result.model_dump_json().encode(), "application/json", "hunk.json")
    row.result = artefacts.find(team, stored.sha)
    row.state, row.finished_at, row.stage = "finished", timezone.now(), ""
    report = result.report
    if report is None:
        row.status, row.message = "infrastructure_error", result.error or "the verifier gave no report"
    else:
        row.status, row.message = report.status, report.message
        against = report.timing.rival if report.timing else None
        if against is not None:
            # The reported speedup belongs to the program without the hunk. Its time relative to the newer program is the inverse.
            row.ratio, row.low, row.high = 1 / against.speedup.ratio, 1 / against.speedup.high, 1 / against.speedup.low
    row.save()


def _locked(hunk: int, attempt: int) -> MeasuredHunk | None:
    row = MeasuredHunk.objects.select_for_update(of=("self",)).select_related("measured__run__task", "program").filter(pk=hunk).first()
    return row if row is not None and row.attempt == attempt and row.state in ("queued", "running") else None
