"""Webhooks of teams and people, the messages sent to each, and the results that a baseline has overtaken."""

from __future__ import annotations

import secrets
import uuid

from django.conf import settings
from django.db import models
from django.utils import timezone

SLACK, MATTERMOST, GENERIC = "slack", "mattermost", "generic"
STYLES = [(SLACK, "Slack"), (MATTERMOST, "Mattermost"), (GENERIC, "Generic JSON")]
WAITING, SENT, FAILED = "waiting", "sent", "failed"


def new_key() -> str:
    return secrets.token_urlsafe(32)


class Hook(models.Model):
    """An address that receives notifications: those for `person` if one is set, or otherwise all those for the team. The address may contain a
    secret."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE, related_name="hooks")
    person = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, null=True, related_name="hooks")
    name = models.CharField(max_length=60)
    url = models.CharField(max_length=1000)
    style = models.CharField(max_length=10, choices=STYLES, default=GENERIC)
    events = models.JSONField(default=list)  # keys of `webapp.review.kinds.HOOKS`
    active = models.BooleanField(default=True)
    key = models.CharField(max_length=64, default=new_key)  # signs generic messages
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["name", "created_at"]

    def __str__(self) -> str:
        return self.name


class Delivery(models.Model):
    """One message to one hook. A message that failed stores the reason and is retried until all attempts are used up."""

    hook = models.ForeignKey(Hook, on_delete=models.CASCADE, related_name="deliveries")
    event = models.CharField(max_length=10)  # a key of `webapp.review.kinds.HOOKS`, or "test"
    message = models.JSONField()  # webapp.notifications.messages.Message
    state = models.CharField(max_length=8, default=WAITING)
    attempts = models.IntegerField(default=0)
    said = models.CharField(max_length=300, blank=True)  # the latest error, or the receiver's response
    at = models.DateTimeField(default=timezone.now)
    next_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [models.Index(fields=["hook", "-at"])]
        ordering = ["-at", "-pk"]


class Overtaken(models.Model):
    """Records that a baseline has been measured to be reliably faster than a team's best program for a task. Written once per result."""

    run = models.OneToOneField("runs.Run", on_delete=models.CASCADE, primary_key=True, related_name="overtaken")
    by = models.ForeignKey("runs.Run", on_delete=models.SET_NULL, null=True, related_name="+")  # the run whose verification measured the baseline
    baseline = models.CharField(max_length=24)
    baseline_ms = models.FloatField()
    program_ms = models.FloatField()
    at = models.DateTimeField(default=timezone.now)
