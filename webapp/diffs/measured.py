"""Measures what each hunk is worth: estimates the cost, starts the measurement, and cancels it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from django.db import connection, transaction
from django.db.models import Avg, ExpressionWrapper, F
from django.db.models.fields import DurationField
from django.utils import timezone
from pydantic import TypeAdapter, ValidationError

from agents.settings import Settings
from verifier.jobs import Job, VerifyJob
from webapp.accounts.models import User
from webapp.diffs.compute import compute
from webapp.diffs.jobs import enqueue_hunk
from webapp.diffs.models import MeasuredDiff, MeasuredHunk
from webapp.diffs.revert import Reverted, reverted_hunks
from webapp.diffs.sides import Side
from webapp.fleet.models import Device
from webapp.runs import artefacts
from webapp.runs.jobs import queue_for
from webapp.runs.models import Verification

MOST_HUNKS = 40  # maximum number of hunks per measurement
USUAL_SECONDS = {"quick": 12.0, "full": 60.0}  # assumed duration of a job if no measurement exists
TIERS = ("quick", "full")
JOB: TypeAdapter[Job] = TypeAdapter(Job)


class NotMeasurable(ValueError):
    """Raised if the two sides cannot be measured hunk by hunk. The message explains why, and what to do."""


@dataclass(frozen=True)
class Terms:
    """The settings used to verify the newer program and to measure its hunks."""

    queue: str
    precision: str
    mode: str
    backward: bool


@dataclass(frozen=True)
class MeasurementCost:
    """The cost of measuring a pair, before it is requested. Seconds are device time."""

    hunks: list[Reverted]
    terms: Terms
    job_seconds: dict[str, float]  # by tier
    known: bool  # whether the seconds come from this task
    device: Device | None  # the device that would take the jobs; None if none is online
    waiting: int  # jobs ahead in its queue

    @property
    def runnable(self) -> list[Reverted]:
        return [hunk for hunk in self.hunks if not hunk.status]

    @property
    def jobs(self) -> int:
        """Returns the number of jobs, which is one per hunk plus one for the older program as a whole."""
        return len(self.runnable) + 1

    def seconds(self, tier: str) -> float:
        return self.jobs * self.job_seconds[tier]


def plan(old: Side, new: Side) -> MeasurementCost:
    """Plans the measurement. Raises `NotMeasurable`."""
    found = compute(old.source, new.source)
    if found.refused:
        raise NotMeasurable(found.refused)
    if len(found.hunks) > MOST_HUNKS:
        raise NotMeasurable(
            f"There are {len(found.hunks)} hunks between these two; {MOST_HUNKS} at most are measured. Choose programs that are nearer to each other."
        )
    terms = terms_of(new)
    return MeasurementCost(reverted_hunks(found, old.source, new.source), terms, *_job_seconds(new), _device(terms.queue), _waiting(terms.queue))


def terms_of(side: Side) -> Terms:
    """Returns the settings of the candidate's own verification or, for an imported run, those in its settings."""
    verification = side.candidate.verification if side.candidate else None
    if verification is not None and verification.request is not None and not side.run.imported:
        try:
            job = JOB.validate_json(artefacts.read(verification.request))
        except ValidationError:
            job = None
        if isinstance(job, VerifyJob):
            return Terms(verification.queue, job.precision, job.mode, job.backward)
    try:
        settings = Settings.model_validate(side.run.settings)
        mode, device = settings.mode, settings.device
    except ValidationError:
        mode, device = "train", side.run.device_kind
    return Terms(queue_for(device), side.run.precision, mode, False)


@transaction.atomic
def start(old: Side, new: Side, tier: str, *, by: User) -> MeasuredDiff:
    """Requests the measurement. Existing results for this pair on this device are kept. Jobs that were cancelled or failed because of the host are
    requested again."""
    planned = plan(old, new)
    team, terms = new.run.team, planned.terms
    measured, _ = MeasuredDiff.objects.select_for_update().get_or_create(
        team=team, old_sha=old.sha, new_sha=new.sha, task_sha=new.run.task.sha, queue=terms.queue, tier=tier, precision=terms.precision,
        mode=terms.mode, backward=terms.backward, defaults={"run": new.run, "sides": f"{old.key}...{new.key}", "created_by": by},
    )  # fmt: skip
    MeasuredDiff.objects.filter(pk=measured.pk).update(cancelled_at=None)
    measured.cancelled_at = None
    whole = Reverted(0, (0,), old.source)
    known = {hunk.number: hunk for hunk in measured.hunks.all()}
    for one in [whole, *planned.hunks]:
        row = known.get(one.number)
        if row is None:
            _ask(measured, one)
        elif row.program is not None and (row.state == "cancelled" or row.status in ("inconclusive", "infrastructure_error")):
            _ask_again(row)
    return measured


def _ask(measured: MeasuredDiff, one: Reverted) -> None:
    row = MeasuredHunk(measured=measured, number=one.number, members=list(one.members), status=one.status, message=one.message)
    if one.status:
        row.state, row.finished_at = "finished", timezone.now()
        row.save()
        return
    stored = artefacts.put(measured.team_id, one.source.encode("utf-8", "surrogatepass"), "text/x-python", "reverted.py")
    row.program = artefacts.find(measured.team_id, stored.sha)
    row.save()
    enqueue_hunk(row.pk, measured.queue, 1)


def _ask_again(row: MeasuredHunk) -> None:
    row.state, row.status, row.message, row.stage, row.result = "queued", "", "", "", None
    row.attempt += 1
    row.started_at = row.finished_at = None
    row.save()
    enqueue_hunk(row.pk, row.measured.queue, row.attempt)


@transaction.atomic
def cancel(measured: MeasuredDiff) -> None:
    """Removes waiting jobs from the queue and aborts running ones. Existing results are kept."""
    open_ = list(measured.hunks.select_for_update().filter(state__in=["queued", "running"]).values_list("pk", flat=True))
    MeasuredHunk.objects.filter(pk__in=open_).update(state="cancelled", stage="", finished_at=timezone.now())
    MeasuredDiff.objects.filter(pk=measured.pk).update(cancelled_at=timezone.now())
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT procrastinate_cancel_job_v1(id, true, false) FROM procrastinate_jobs"
            " WHERE task_name = 'measure_hunk' AND status IN ('todo', 'doing') AND (args ->> 'hunk_id')::bigint = ANY(%s)",
            [open_],
        )


def latest_of(old: Side, new: Side) -> MeasuredDiff | None:
    """Returns the most recently requested measurement of these two sides, in either run's team."""
    return MeasuredDiff.objects.filter(team=new.run.team, old_sha=old.sha, new_sha=new.sha, task_sha=new.run.task.sha).order_by("-created_at").first()


def _job_seconds(side: Side) -> tuple[dict[str, float], bool]:
    """Returns the seconds per job by tier, from verifications of this task on this kind of device. Each is 1.5 times the mean, because a job here
    also times a third program."""
    took = ExpressionWrapper(F("finished_at") - F("started_at"), output_field=DurationField())
    rows = Verification.objects.filter(
        run__task=side.run.task,
        run__device_kind=side.run.device_kind,
        kind="verify",
        status="passed",
        started_at__isnull=False,
        finished_at__isnull=False,
    )
    seen = {row["tier"]: row["mean"].total_seconds() for row in rows.values("tier").annotate(mean=Avg(took, default=timedelta(0)))}
    return {tier: 1.5 * seen[tier] if seen.get(tier) else USUAL_SECONDS[tier] for tier in TIERS}, any(seen.get(tier) for tier in TIERS)


def _device(queue: str) -> Device | None:
    wanted = queue.removeprefix("verify.")
    devices = Device.objects.filter(device=wanted) | Device.objects.filter(kind=wanted)
    return next((device for device in devices.order_by("-heartbeat_at") if device.online), None)


def _waiting(queue: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM procrastinate_jobs WHERE queue_name = %s AND status IN ('todo', 'doing')", [queue])
        return int(cursor.fetchone()[0])
