"""Measured diffs: what each hunk between two programs is worth. They are stored separately from runs, because a run's trace is append-only and the
run may have ended."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models
from django.utils import timezone

from webapp.runs.models import Artefact, Run


class MeasuredDiff(models.Model):
    """A pair of programs on one kind of device. A repeated request uses the existing row."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE)
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="measured_diffs")  # the run of the newer program
    sides = models.CharField(max_length=120)  # as written in the URL of the diff
    old_sha = models.CharField(max_length=64)
    new_sha = models.CharField(max_length=64)
    task_sha = models.CharField(max_length=64)
    queue = models.CharField(max_length=80)
    tier = models.CharField(max_length=8)  # quick or full
    precision = models.CharField(max_length=12)
    mode = models.CharField(max_length=8)
    backward = models.BooleanField(default=False)
    device_name = models.CharField(max_length=120, blank=True)  # the device that ran the jobs
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True)
    created_at = models.DateTimeField(default=timezone.now)
    cancelled_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["team", "old_sha", "new_sha", "task_sha", "queue", "tier", "precision", "mode", "backward"], name="one_measured_diff_a_pair"
            )
        ]

    def __str__(self) -> str:
        return f"{self.sides} on {self.queue.removeprefix('verify.')}"


class MeasuredHunk(models.Model):
    """The newer program with one hunk reverted, alone or together with the hunks at the other ends of its moved blocks. Number 0 is the older program
    itself."""

    STATES = ["queued", "running", "finished", "cancelled"]

    measured = models.ForeignKey(MeasuredDiff, on_delete=models.CASCADE, related_name="hunks")
    number = models.IntegerField()
    members = models.JSONField(default=list)  # numbers of the hunks that are reverted together
    program = models.ForeignKey(Artefact, on_delete=models.PROTECT, null=True, related_name="+")  # without the hunk; null: not measurable
    state = models.CharField(max_length=10, choices=[(s, s) for s in STATES], default="queued")
    stage = models.CharField(max_length=60, blank=True)
    attempt = models.IntegerField(default=1)
    status = models.CharField(max_length=24, blank=True)  # the verifier's verdict; "same", "syntax" and "names" are known without the verifier
    message = models.TextField(blank=True)
    # The time of the program without the hunk divided by that of the newer program, measured alternately. If it is above 1, the hunk saves time.
    ratio = models.FloatField(null=True)
    low = models.FloatField(null=True)
    high = models.FloatField(null=True)
    result = models.ForeignKey(Artefact, on_delete=models.PROTECT, null=True, related_name="+")  # JobResult as JSON
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["number"]
        constraints = [models.UniqueConstraint(fields=["measured", "number"], name="one_measurement_a_hunk")]
