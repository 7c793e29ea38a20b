"""The language models configured in the orchestrator, the requests sent to them, and the requests that are waiting for a person's reply. Keys are
never stored here."""

from __future__ import annotations

import uuid
from datetime import timedelta

from django.conf import settings
from django.db import models
from django.utils import timezone

ANNOUNCED_FOR = timedelta(seconds=60)  # each orchestrator announces every 10 s


class Announcement(models.Model):
    """The latest announcement of the profiles file by an orchestrator. There is only one row, because an installation's orchestrators share their
    profiles."""

    file = models.CharField(max_length=200, blank=True)  # name of the file, never its path
    problem = models.TextField(blank=True)  # why it cannot be used
    at = models.DateTimeField(default=timezone.now)

    @property
    def recent(self) -> bool:
        return timezone.now() - self.at < ANNOUNCED_FOR


class Profile(models.Model):
    """A profile as configured in the orchestrator's environment."""

    name = models.CharField(max_length=64, primary_key=True)
    kind = models.CharField(max_length=12)  # openai, anthropic, mailbox, cassette
    model = models.CharField(max_length=200, blank=True)
    base_url = models.CharField(max_length=300, blank=True)
    key_variable = models.CharField(max_length=100, blank=True)  # name of the environment variable; "" if the server needs no key
    key_is_set = models.BooleanField(default=False)
    details = models.JSONField(default=dict)  # prices, limits, max_tokens, context_tokens, ...
    trial = models.JSONField(null=True)  # agents.llm.check.Trial of the latest test
    tried_at = models.DateTimeField(null=True)
    trying_since = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return self.name

    @property
    def ready(self) -> bool:
        return not self.key_variable or self.key_is_set


class ModelCall(models.Model):
    """One exchange between a run and a model, projected from `llm.completed` and `llm.failed`."""

    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE)
    run = models.ForeignKey("runs.Run", on_delete=models.CASCADE, related_name="model_calls")
    seq = models.BigIntegerField()  # seq of its event; a replay has no event, so the negated id of the replay is used
    at = models.DateTimeField()
    profile = models.CharField(max_length=64)
    model = models.CharField(max_length=200, blank=True)
    agent = models.CharField(max_length=20, blank=True)
    purpose = models.CharField(max_length=80, blank=True)
    failed = models.BooleanField(default=False)
    calls = models.IntegerField(default=1)  # number of requests sent for this exchange
    input_tokens = models.BigIntegerField(null=True)  # null if the server did not report it
    output_tokens = models.BigIntegerField(null=True)
    tokens = models.BigIntegerField(default=0)  # as counted by the budget, estimates included
    dollars = models.FloatField(null=True)
    seconds = models.FloatField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "seq"], name="one_model_call_an_event")]
        indexes = [models.Index(fields=["team", "at"])]


class Replay(models.Model):
    """A run's request that somebody has resent, possibly edited or to a different model. A replay belongs to no trace, so it doesn't change the
    run."""

    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE)
    run = models.ForeignKey("runs.Run", on_delete=models.CASCADE, related_name="replays")
    seq = models.BigIntegerField()  # seq of the run's `llm.requested` event
    profile = models.CharField(max_length=64)
    request = models.JSONField()  # agents.llm.messages.Request
    reply = models.JSONField(null=True)  # agents.llm.messages.Reply
    failure = models.TextField(blank=True)  # why there is no reply, and what to do about it
    asked_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    asked_at = models.DateTimeField(default=timezone.now)
    answered_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [models.Index(fields=["run", "seq"])]

    @property
    def seconds(self) -> float | None:
        return (self.answered_at - self.asked_at).total_seconds() if self.answered_at else None


class Letter(models.Model):
    """A request that is waiting, or has waited, for a person's reply: `agents.llm.mailbox.Waiting` with the reply."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=220, unique=True)  # Waiting.id
    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE, null=True)
    run = models.ForeignKey("runs.Run", on_delete=models.CASCADE, null=True, related_name="letters")  # null for a check of the mailbox
    profile = models.CharField(max_length=64)
    waiting = models.JSONField()  # Waiting
    asked_at = models.DateTimeField(default=timezone.now)
    withdrawn_at = models.DateTimeField(null=True)
    reply = models.TextField(null=True)
    replied_at = models.DateTimeField(null=True)
    replied_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")

    class Meta:
        indexes = [models.Index(fields=["team", "asked_at"])]

    @property
    def state(self) -> str:
        """Returns "waiting", "answered" or "withdrawn"."""
        return "answered" if self.reply is not None else "withdrawn" if self.withdrawn_at else "waiting"

    @property
    def purpose(self) -> str:
        return str(self.waiting["request"].get("purpose", ""))

    @property
    def role(self) -> str:
        """Returns the first part of the role's name, such as "coder" for "coder/repair"."""
        return self.purpose.partition("/")[0]
