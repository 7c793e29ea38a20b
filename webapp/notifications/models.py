"""Webhooks of teams and people, what was sent to each, and results that a baseline overtook."""

from __future__ import annotations

import secrets
import uuid

from django.conf import settings
from django.db import models
from django.utils import timezone

SLACK, MATTERMOST, GENERIC = "slack", "mattermost", "generic"
STYLES = [(SLACK, "Slack"), (MATTERMOST, "Mattermost"), (GENERIC, "Generic JSON")]
ENDED, VERDICT, OVERTAKEN = "ended", "verdict", "overtaken"
EVENTS = {ENDED: "a run ends", VERDICT: "a verdict changes", OVERTAKEN: "a baseline overtakes a result"}
WAITING, SENT, FAILED = "waiting", "sent", "failed"


def new_key() -> str:
    return secrets.token_urlsafe(32)


class Hook(models.Model):
    """An address that is told. With `person` of what that person is told of, else of everything in the team. The address may hold a secret."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE, related_name="hooks")
    person = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, null=True, related_name="hooks")
    name = models.CharField(max_length=60)
    url = models.CharField(max_length=1000)
    style = models.CharField(max_length=10, choices=STYLES, default=GENERIC)
    events = models.JSONField(default=list)  # keys of EVENTS
    active = models.BooleanField(default=True)
    key = models.CharField(max_length=64, default=new_key)  # what generic messages are signed with
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["name", "created_at"]

    def __str__(self) -> str:
        return self.name


class Delivery(models.Model):
    """One message to one hook. What failed says why, and is tried again until `attempts` are used up."""

    hook = models.ForeignKey(Hook, on_delete=models.CASCADE, related_name="deliveries")
    event = models.CharField(max_length=10)  # of EVENTS, or "test"
    message = models.JSONField()  # webapp.notifications.messages.Message
    state = models.CharField(max_length=8, default=WAITING)
    attempts = models.IntegerField(default=0)
    said = models.CharField(max_length=300, blank=True)  # what went wrong last, or what the other side answered
    at = models.DateTimeField(default=timezone.now)
    next_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [models.Index(fields=["hook", "-at"])]
        ordering = ["-at", "-pk"]


class Overtaken(models.Model):
    """A baseline was measured to be surely faster than what was a team's best program of a task. Written once a result."""

    run = models.OneToOneField("runs.Run", on_delete=models.CASCADE, primary_key=True, related_name="overtaken")
    by = models.ForeignKey("runs.Run", on_delete=models.SET_NULL, null=True, related_name="+")  # whose verification measured the baseline
    baseline = models.CharField(max_length=24)
    baseline_ms = models.FloatField()
    program_ms = models.FloatField()
    at = models.DateTimeField(default=timezone.now)
