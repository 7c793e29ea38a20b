"""Runs and their traces. The events are the truth; run, candidate and verification rows are projections of them, written in the same transaction."""

from __future__ import annotations

import uuid

from django.conf import settings as django_settings
from django.db import models
from django.db.models import F
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast, Coalesce
from django.utils import timezone

from agents.choices.workflows import DEFAULT, searches
from agents.payloads import Payload, read
from webapp.runs.fields import ExactJSONField

# By what the list of runs is ordered, besides their age.
RATIO = Coalesce(Cast(KeyTextTransform("ratio", "speedup"), models.FloatField()), models.Value(0.0))
TOOK = models.ExpressionWrapper(F("finished_at") - F("started_at"), output_field=models.DurationField())


class Artefact(models.Model):
    """Content-addressed bytes, kept in chunks; the same bytes in the same team are stored once."""

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
    workflow = models.CharField(max_length=30, default=DEFAULT)  # agents.choices.workflows
    settings = models.JSONField(default=dict)  # agents.run.Settings as JSON
    device_kind = models.CharField(max_length=8, default="cpu")  # "cpu", "cuda"
    precision = models.CharField(max_length=12, default="fp32-strict")

    state = models.CharField(max_length=10, choices=[(s, s) for s in STATES], default="queued")
    outcome = models.CharField(max_length=14, blank=True)
    reason = models.TextField(blank=True)
    last_seq = models.BigIntegerField(default=0)
    lease_epoch = models.BigIntegerField(default=0)
    best_candidate = models.IntegerField(null=True)
    speedup = models.JSONField(null=True)  # {ratio, low, high} against eager, of the confirmed result
    spent = models.JSONField(default=dict)
    published = models.BooleanField(default=False)  # the team shows this result to everyone who can sign in

    created_by = models.ForeignKey(django_settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True)
    created_at = models.DateTimeField(default=timezone.now)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    archived_at = models.DateTimeField(null=True)
    imported = models.BooleanField(default=False)  # came by import_trace

    class Meta:
        indexes = [
            models.Index(fields=["team", "-created_at"]),
            models.Index(fields=["state"]),
            # What Census asks for stands in the index itself: the rows are not read. `last_seq` must stay in none, it changes with every event.
            models.Index(
                fields=["team"], name="run_census",
                include=["archived_at", "state", "outcome", "workflow", "device_kind", "precision", "created_by"],
            ),
            models.Index(fields=["team", "-created_at", "-id"], name="run_listed", condition=models.Q(archived_at=None)),
            models.Index(fields=["task", "-created_at"], name="run_of_task"),
            models.Index(F("team"), RATIO, F("id"), name="run_by_speedup"),
            models.Index(F("team"), TOOK, F("id"), name="run_by_time"),
        ]  # fmt: skip

    def __str__(self) -> str:
        return self.title

    @property
    def searches(self) -> bool:
        """Whether agents write its programs; false: a person's own program is verified."""
        return searches(self.workflow)


class Tag(models.Model):
    """A word that a team puts on a run to find it again. People's own order: it is in no trace and no ranking."""

    LONGEST = 40

    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE)
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="tags")
    name = models.CharField(max_length=LONGEST)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "name"], name="one_tag_a_name")]
        indexes = [models.Index(fields=["team", "name"])]


class SavedFilter(models.Model):
    """A question to the list of runs that somebody keeps."""

    LONGEST = 60

    user = models.ForeignKey(django_settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE)
    name = models.CharField(max_length=LONGEST)
    query = models.CharField(max_length=1000)  # as it stands in the address, without cursors

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "team", "name"], name="one_saved_filter_a_name")]


class Dismissed(models.Model):
    """Somebody has seen why a run asked for attention; it asks them no more for that reason."""

    user = models.ForeignKey(django_settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="+")
    reason = models.CharField(max_length=12)  # of webapp/runs/pages/attention.py

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "run", "reason"], name="one_dismissal_a_reason")]


class Event(models.Model):
    """Append only, through the SQL function `stitchwork_append` (migration 0002): never `Event.objects.create`."""

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
        """What it says, in its type."""
        return read(self.kind, self.payload)


class Verification(models.Model):
    """One effect on a verifier. The queue's job carries only this id with attempt and lease epoch."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE)
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="verifications")
    key = models.CharField(max_length=220)  # the effect's journal key
    span = models.CharField(max_length=200, blank=True)
    kind = models.CharField(max_length=10)  # admit, capture, verify, profile
    candidate_number = models.IntegerField(null=True)
    request = models.ForeignKey(Artefact, on_delete=models.PROTECT, null=True, related_name="+")  # the Job as JSON; null: imported
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
    # Columns of the report that lists and rankings need; null unless kind is "verify".
    status = models.CharField(max_length=24, blank=True)
    tier = models.CharField(max_length=8, blank=True)
    device_model = models.CharField(max_length=60, blank=True)
    device_name = models.CharField(max_length=120, blank=True)
    clock = models.SmallIntegerField(null=True)  # version of the verifier's clock (`verifier.report.CLOCK`); null: there is no report
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
    baselines = models.PositiveSmallIntegerField(null=True)  # how many were timed, eager included
    flags = models.JSONField(default=list)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "key"], name="one_verification_an_effect")]
        indexes = [
            models.Index(fields=["kind", "tier", "status", "device_model"]),
            models.Index(fields=["queue", "queued_at"], name="verification_open", condition=~models.Q(state="finished")),
        ]


class Candidate(models.Model):
    """One proposed program of a run."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="candidates")
    number = models.IntegerField()
    parent_number = models.IntegerField(null=True)
    title = models.CharField(max_length=200)
    changes = models.TextField(blank=True)
    step = models.CharField(max_length=60, blank=True)
    strategy = models.CharField(max_length=60, blank=True)
    sha = models.CharField(max_length=64)
    kernels = models.TextField(blank=True, default="", db_default="")  # names of those in its program, with a space between
    program = models.ForeignKey(Artefact, on_delete=models.PROTECT, related_name="+")
    # Latest verification's verdict; the tier "full" one wins over "quick".
    verification = models.ForeignKey(Verification, on_delete=models.SET_NULL, null=True, related_name="+")
    timeline = models.ForeignKey(Artefact, on_delete=models.PROTECT, null=True, related_name="+")
    profile = models.ForeignKey(Artefact, on_delete=models.PROTECT, null=True, related_name="+")
    # What people judged of it, written by webapp/review/verdicts.py: "", accepted, questioned, hack, retracted. All but the first two leave rankings.
    verdict = models.CharField(max_length=12, blank=True, default="", db_default="")
    created_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "number"], name="one_candidate_a_number")]


class Turn(models.Model):
    """When somebody's job was last taken from a queue (webapp/runs/workers/fairness.py). Written by Postgres alone."""

    queue = models.CharField(max_length=80)
    who = models.CharField(max_length=160)  # a team; team/person; team/person/run
    at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["queue", "who"], name="one_turn_each")]
