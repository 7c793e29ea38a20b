"""Devices that verifiers announce. Devices belong to the installation, not to a team."""

from __future__ import annotations

from datetime import timedelta

from django.db import models
from django.utils import timezone

ONLINE_FOR = timedelta(seconds=20)  # heartbeats are sent every 5 s


class Device(models.Model):
    worker = models.CharField(max_length=64, unique=True)  # random name that a verifier stores in its DATA_DIR; never a host name
    kind = models.CharField(max_length=8, choices=[("cpu", "CPU"), ("cuda", "CUDA")])
    device = models.CharField(max_length=16)  # "cpu", "cuda:0"
    name = models.CharField(max_length=120)  # "NVIDIA H200"
    model = models.CharField(max_length=60)  # key for comparisons, as in Report.environment.device_model
    queue = models.CharField(max_length=80)  # "verify.cpu", "verify.cuda"
    doctor = models.JSONField(default=dict)  # output of `python -m verifier doctor --json`
    busy_with = models.CharField(max_length=120, blank=True)
    started_at = models.DateTimeField(auto_now_add=True)
    heartbeat_at = models.DateTimeField(default=timezone.now)

    @property
    def online(self) -> bool:
        return timezone.now() - self.heartbeat_at < ONLINE_FOR

    @property
    def needs_sandbox(self) -> str:
        """Returns the sandbox features that the host lacks and how to get them, or "" if it takes jobs. Jobs stay queued until this is fixed."""
        return str((self.doctor or {}).get("needs_sandbox") or "")

    def __str__(self) -> str:
        return f"{self.name} ({self.device})"
