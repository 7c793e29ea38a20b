"""Arenas. An arena consists of ordinary runs that try several workflows on the same tasks, with the same seeds and budget."""

from __future__ import annotations

import uuid

from django.conf import settings as django_settings
from django.db import models
from django.utils import timezone


class Arena(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE, related_name="arenas")
    name = models.CharField(max_length=140)
    settings = models.JSONField(default=dict)  # webapp.arena.services.Chosen as JSON
    created_by = models.ForeignKey(django_settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        indexes = [models.Index(fields=["team", "-created_at"])]

    def __str__(self) -> str:
        return self.name


class ArenaRun(models.Model):
    """A run that belongs to an arena. The run itself holds the task, workflow and device."""

    arena = models.ForeignKey(Arena, on_delete=models.CASCADE, related_name="entries")
    run = models.OneToOneField("runs.Run", on_delete=models.CASCADE, related_name="arena_entry")
    seed = models.IntegerField()
