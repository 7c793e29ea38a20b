"""A team's tasks (contract 1), as stored in the database."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models
from django.utils import timezone


class Suite(models.Model):
    """A named set of tasks, such as an imported KernelBench level."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE, related_name="suites")
    name = models.CharField(max_length=100)
    slug = models.SlugField(max_length=110)
    description = models.TextField(blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["team", "slug"], name="one_suite_a_slug")]

    def __str__(self) -> str:
        return self.name


class Task(models.Model):
    """One source. A team stores the same source only once, as the same task."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE, related_name="tasks")
    suite = models.ForeignKey(Suite, on_delete=models.SET_NULL, null=True, blank=True, related_name="tasks")
    sha = models.CharField(max_length=64)
    name = models.CharField(max_length=120)
    source = models.TextField()
    flags = models.JSONField(default=list)  # from the last admission
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["team", "sha"], name="one_task_a_source")]

    def __str__(self) -> str:
        return self.name


class TryOut(models.Model):
    """An admission requested while someone types source code. Each combination of source, device and settings is requested only once per team."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE, related_name="+")
    sha = models.CharField(max_length=64)
    source = models.TextField()
    device_kind = models.CharField(max_length=8)  # "cpu", "cuda"
    precision = models.CharField(max_length=12)
    mode = models.CharField(max_length=8)
    state = models.CharField(max_length=10, default="queued")  # queued, running, finished, or dropped (the author has continued typing)
    stages = models.JSONField(default=list)  # the last verifier.jobs.StageEvent of each stage
    admission = models.JSONField(null=True)  # verifier.task.Admission
    error = models.TextField(blank=True)  # set if the host was at fault
    device_name = models.CharField(max_length=120, blank=True)
    asked_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    asked_at = models.DateTimeField(default=timezone.now)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["team", "sha", "device_kind", "precision", "mode"], name="one_try_out_a_source")]
        indexes = [models.Index(fields=["asked_by", "state"])]
