"""Tries out a source while a person types it, using the verifier's own admission in its sandbox. Results are cached by request."""

from __future__ import annotations

import logging
from datetime import timedelta

from django.db import transaction
from django.utils import timezone
from procrastinate.contrib.django.models import ProcrastinateJob

from verifier.source import Problem, sha256
from verifier.task import Admission
from webapp.accounts.models import Team, User
from webapp.runs.jobs import queue_for
from webapp.tasks.jobs import enqueue
from webapp.tasks.models import TryOut

log = logging.getLogger(__name__)

KEPT_FOR = timedelta(days=7)
GIVEN_UP_AFTER = timedelta(minutes=4)  # longer than any admission takes, so a verifier that takes longer must have died


def ask(team: Team, user: User, source: str, *, device_kind: str, precision: str, mode: str) -> TryOut:
    """Return the known result, or a new request. The same person's earlier request is dropped if it has not started."""
    asked = {"team": team, "sha": sha256(source), "device_kind": device_kind, "precision": precision, "mode": mode}
    with transaction.atomic():
        TryOut.objects.filter(team=team, asked_at__lt=timezone.now() - KEPT_FOR).delete()
        TryOut.objects.filter(asked_by=user, state="queued").exclude(**asked).update(state="dropped")
        row, created = TryOut.objects.get_or_create(**asked, defaults={"source": source, "asked_by": user})
        again = row.state == "dropped" or (row.state == "finished" and row.error) or gone(row)
        if not created and again:
            TryOut.objects.filter(pk=row.pk).update(
                state="queued", stages=[], admission=None, error="", asked_by=user, asked_at=timezone.now(), started_at=None, finished_at=None
            )
            row.refresh_from_db()
        if created or again:
            enqueue(row.pk, device_kind)
    return row


def gone(row: TryOut) -> bool:
    """Return whether the verifier that took the request has died while working on it."""
    return row.state == "running" and row.started_at is not None and timezone.now() - row.started_at > GIVEN_UP_AFTER


def before(row: TryOut) -> int:
    """Return the number of jobs that the device runs first: running jobs, and earlier try-outs."""
    jobs = ProcrastinateJob.objects.filter(queue_name=queue_for(row.device_kind))
    earlier = jobs.filter(status="todo", task_name="try_out", scheduled_at=None, id__lt=_job_of(row) or 0).count()
    return earlier + jobs.filter(status="doing").count()


def _job_of(row: TryOut) -> int | None:
    return ProcrastinateJob.objects.filter(task_name="try_out", args__try_out_id=str(row.pk), status="todo").values_list("id", flat=True).first()


def problems(row: TryOut) -> list[Problem]:
    return Admission.model_validate(row.admission).problems if row.admission else []
