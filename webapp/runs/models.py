"""Runs and their traces.

The events are the source of truth. The rows of runs, candidates and verifications are projections of them, written in the same transaction.
"""

from __future__ import annotations

import uuid
from typing import TypeVar

from django.conf import settings as django_settings
from django.db import models
from django.db.models import F
from django.db.models.functions import Coalesce
from django.utils import timezone

from agents.choices.workflows import DEFAULT, searches
from agents.payloads import Payload, read
from webapp.runs.fields import ExactJSONField

Said = TypeVar("Said", bound=Payload)

# Sort keys of the run list besides age.
GAIN = Coalesce(F("gain"), models.Value(0.0))
TOOK = models.ExpressionWrapper(F("finished_at") - F("started_at"), output_field=models.DurationField())


class Artefact(models.Model):
    """Content-addressed bytes, stored in chunks and only once per team."""

    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE)
    sha = models.CharField(max_length=64)
    media_type = models.CharField(max_length=100)
    bytes = models.BigIntegerField()
    name = models.CharField(max_length=200, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["team", "sha"], name="one_artefact_a_content")]


class ArtefactChunk(models.Model):
    artefact = models.ForeignKey(Artefact, on_delete=models.CASCADE, related_name="chunks")
    index = models.IntegerField()
    data = models.BinaryField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["artefact", "index"], name="one_chunk_an_index")]


class Run(models.Model):
    STATES = ["queued", "running", "paused", "finished"]
    OUTCOMES = ["improved", "matched", "failed", "cancelled", "out_of_budget", "inconclusive"]

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE, related_name="runs")
    task = models.ForeignKey("tasks.Task", on_delete=models.PROTECT, related_name="runs")
    title = models.CharField(max_length=140)
    workflow = models.CharField(max_length=30, default=DEFAULT)  # one of agents.choices.workflows
    settings = models.JSONField(default=dict)  # agents.run.Settings as JSON
    device_kind = models.CharField(max_length=8, default="cpu")  # "cpu", "cuda"
    precision = models.CharField(max_length=12, default="fp32-strict")

    state = models.CharField(max_length=10, choices=[(s, s) for s in STATES], default="queued")
    outcome = models.CharField(max_length=14, blank=True)
    reason = models.TextField(blank=True)
    last_seq = models.BigIntegerField(default=0)
    lease_epoch = models.BigIntegerField(default=0)
    best_candidate = models.IntegerField(null=True)
    speedup = models.JSONField(null=True)  # {ratio, low, high} over eager, from the confirmed result
    # The headline of a finished run (webapp/runs/headline.py), kept so that lists can sort and filter by it.
    headline = models.CharField(max_length=12, blank=True, default="", db_default="")  # a key of OUTCOMES; "" before the run has finished
    gain = models.FloatField(null=True)  # speedup over the best measured baseline; null without a program that passed
    spent = models.JSONField(default=dict)
    published = models.BooleanField(default=False)  # whether the team shows this result to everyone with an account

    created_by = models.ForeignKey(django_settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True)
    created_at = models.DateTimeField(default=timezone.now)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    archived_at = models.DateTimeField(null=True)
    imported = models.BooleanField(default=False)  # created by import_trace

    class Meta:
        indexes = [
            models.Index(fields=["team", "-created_at"]),
            models.Index(fields=["state"]),
            # The index covers every column that Census queries, so the rows are not read. Keep `last_seq` out of all indexes, because it changes with
            # every event.
            models.Index(
                fields=["team"], name="run_census",
                include=["archived_at", "state", "headline", "outcome", "workflow", "device_kind", "precision", "created_by"],
            ),
            models.Index(fields=["team", "-created_at", "-id"], name="run_listed", condition=models.Q(archived_at=None)),
            models.Index(fields=["task", "-created_at"], name="run_of_task"),
            models.Index(F("team"), GAIN, F("id"), name="run_by_gain"),
            models.Index(F("team"), TOOK, F("id"), name="run_by_time"),
        ]  # fmt: skip

    def __str__(self) -> str:
        return self.title

    @property
    def searches(self) -> bool:
        """Return whether agents write the run's programs. False if the run verifies a program that a person submitted."""
        return searches(self.workflow)


class Tag(models.Model):
    """A label that a team attaches to a run in order to find it again. Tags only organise runs and don't appear in traces or rankings."""

    LONGEST = 40

    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE)
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="tags")
    name = models.CharField(max_length=LONGEST)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "name"], name="one_tag_a_name")]
        indexes = [models.Index(fields=["team", "name"])]


class SavedFilter(models.Model):
    """A query for the run list that a person has saved."""

    LONGEST = 60

    user = models.ForeignKey(django_settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE)
    name = models.CharField(max_length=LONGEST)
    query = models.CharField(max_length=1000)  # as in the URL, without cursors

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "team", "name"], name="one_saved_filter_a_name")]


class Dismissed(models.Model):
    """A reason for attention that a person has dismissed. The run is no longer listed for that person for that reason."""

    user = models.ForeignKey(django_settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="+")
    reason = models.CharField(max_length=12)  # as in webapp/runs/pages/attention.py

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "run", "reason"], name="one_dismissal_a_reason")]


class Event(models.Model):
    """Rows are only ever appended, and only by the SQL function `stitchwork_append` (migration 0002), never with `Event.objects.create`."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="events")
    seq = models.BigIntegerField()
    v = models.SmallIntegerField(default=1)
    at = models.DateTimeField()
    span = models.CharField(max_length=200, blank=True)
    parent = models.CharField(max_length=200, blank=True)
    agent = models.CharField(max_length=20, blank=True)
    kind = models.CharField(max_length=40)
    payload = ExactJSONField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "seq"], name="one_event_a_seq")]

    @property
    def body(self) -> Payload:
        """Return the payload as an instance of its own type."""
        return read(self.kind, self.payload)

    def said(self, kind: type[Said]) -> Said:
        """Return the payload of an event of this kind. Raises `TypeError` if the event is of a different kind."""
        body = self.body
        if not isinstance(body, kind):
            raise TypeError(f"{self.kind} is not {kind.kind}")
        return body


class Verification(models.Model):
    """One effect that a verifier carries out. The queued job contains only this id, the attempt and the lease epoch."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE)
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="verifications")
    key = models.CharField(max_length=220)  # the effect's journal key
    span = models.CharField(max_length=200, blank=True)
    kind = models.CharField(max_length=10)  # admit, capture, verify, profile
    candidate_number = models.IntegerField(null=True)
    request = models.ForeignKey(Artefact, on_delete=models.PROTECT, null=True, related_name="+")  # the Job as JSON; null if the run was imported
    queue = models.CharField(max_length=80)

    state = models.CharField(max_length=10, default="queued")  # queued, running, finished
    attempt = models.IntegerField(default=1)
    lease_epoch = models.BigIntegerField(default=0)
    device = models.ForeignKey("fleet.Device", on_delete=models.SET_NULL, null=True)
    queued_at = models.DateTimeField(default=timezone.now)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    result = models.ForeignKey(Artefact, on_delete=models.PROTECT, null=True, related_name="+")  # JobResult as JSON
    timeline = models.ForeignKey(Artefact, on_delete=models.PROTECT, null=True, related_name="+")
    # Columns of the report that lists and rankings need; null unless `kind` is "verify".
    status = models.CharField(max_length=24, blank=True)
    tier = models.CharField(max_length=8, blank=True)
    device_model = models.CharField(max_length=60, blank=True)
    device_name = models.CharField(max_length=120, blank=True)
    clock = models.SmallIntegerField(null=True)  # version of the verifier's clock (`verifier.report.CLOCK`); null without a report
    program_class = models.CharField(max_length=16, blank=True)
    own_share = models.FloatField(null=True)
    program_ms = models.FloatField(null=True)
    speedup = models.FloatField(null=True)  # against eager
    speedup_low = models.FloatField(null=True)
    speedup_high = models.FloatField(null=True)
    best_baseline = models.CharField(max_length=24, blank=True)
    best_baseline_speedup = models.FloatField(null=True)
    best_baseline_low = models.FloatField(null=True)
    best_baseline_high = models.FloatField(null=True)
    baselines = models.PositiveSmallIntegerField(null=True)  # number of timed baselines, eager included
    flags = models.JSONField(default=list)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "key"], name="one_verification_an_effect")]
        indexes = [
            models.Index(fields=["kind", "tier", "status", "device_model"]),
            models.Index(fields=["queue", "queued_at"], name="verification_open", condition=~models.Q(state="finished")),
        ]


class Candidate(models.Model):
    """A program that a run has proposed."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="candidates")
    number = models.IntegerField()
    parent_number = models.IntegerField(null=True)
    title = models.CharField(max_length=200)
    changes = models.TextField(blank=True)
    step = models.CharField(max_length=60, blank=True)
    strategy = models.CharField(max_length=120, blank=True)
    sha = models.CharField(max_length=64)
    kernels = models.TextField(blank=True, default="", db_default="")  # names of the program's kernels, separated by spaces
    program = models.ForeignKey(Artefact, on_delete=models.PROTECT, related_name="+")
    # Verdict of the latest verification. The "full" tier takes precedence over "quick".
    verification = models.ForeignKey(Verification, on_delete=models.SET_NULL, null=True, related_name="+")
    timeline = models.ForeignKey(Artefact, on_delete=models.PROTECT, null=True, related_name="+")
    profile = models.ForeignKey(Artefact, on_delete=models.PROTECT, null=True, related_name="+")
    # People's judgement, written by webapp/review/verdicts.py: "", accepted, questioned, hack or retracted. All but the first two exclude the result
    # from rankings.
    verdict = models.CharField(max_length=12, blank=True, default="", db_default="")
    created_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "number"], name="one_candidate_a_number")]


class Turn(models.Model):
    """The time when a team's, person's or run's job was last taken from a queue (webapp/runs/workers/fairness.py). Only Postgres writes it."""

    queue = models.CharField(max_length=80)
    who = models.CharField(max_length=160)  # "team", "team/person" or "team/person/run"
    at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["queue", "who"], name="one_turn_each")]
