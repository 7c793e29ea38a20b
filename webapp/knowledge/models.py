"""A team's knowledge: the documents that its members add, and the lessons about strategies from its finished runs."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models
from django.utils import timezone


class Document(models.Model):
    """A text that agents can look up and must cite."""

    KINDS = [("markdown", "Markdown"), ("text", "plain text")]

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE, related_name="documents")
    title = models.CharField(max_length=140)
    kind = models.CharField(max_length=8, choices=KINDS, default="markdown")
    text = models.TextField()
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    changed_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)
    changed_at = models.DateTimeField(default=timezone.now)

    class Meta:
        indexes = [models.Index(fields=["team", "-changed_at"])]

    def __str__(self) -> str:
        return self.title


class Passage(models.Model):
    """A section of a document. Migration 0001 adds the `search` column (a tsvector maintained by Postgres) with its GIN index."""

    document = models.ForeignKey(Document, on_delete=models.CASCADE, related_name="passages")
    index = models.IntegerField()
    title = models.CharField(max_length=140)  # the document's title, which is searched together with the passage
    heading = models.TextField(blank=True)
    text = models.TextField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["document", "index"], name="one_passage_an_index")]


class Learned(models.Model):
    """One application of a strategy in a finished run, which is a row of `agents.strategies.ledger.Entry`. Rows are written when the run finishes,
    and rebuilt with the run's projection."""

    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE)
    run = models.ForeignKey("runs.Run", on_delete=models.CASCADE, related_name="learned")
    candidate = models.IntegerField()
    strategy = models.CharField(max_length=120)
    step = models.CharField(max_length=60, blank=True)
    operators = models.JSONField(default=list)
    device = models.CharField(max_length=8)  # "cpu", "cuda"
    device_model = models.CharField(max_length=60, blank=True)
    precision = models.CharField(max_length=12, blank=True)
    task_sha = models.CharField(max_length=64)
    task_name = models.CharField(max_length=140, blank=True)
    title = models.CharField(max_length=200, blank=True)
    changes = models.TextField(blank=True)
    program = models.CharField(max_length=64, blank=True)  # SHA of the program's artefact
    status = models.CharField(max_length=24, blank=True)
    expected = models.FloatField(null=True)
    realised = models.FloatField(null=True)
    speedup = models.FloatField(null=True)
    outcome = models.CharField(max_length=14)
    confirmed = models.BooleanField(default=False)
    at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "candidate"], name="one_lesson_a_candidate")]
        indexes = [models.Index(fields=["team", "strategy", "device"]), models.Index(fields=["team", "confirmed", "device"])]
