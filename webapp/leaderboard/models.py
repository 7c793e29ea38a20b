"""The data behind the ranking: one row per finished run, written in the transaction that finishes the run (webapp/leaderboard/recording.py).

Among a team's runs of the same entry on the same task under the same setup, only the median counts. Postgres keeps track of it (migration 0003). The
rows are narrow because a page reads every counting row of the selection. Data needed only for evidence and exports is in `Provenance`. Suites and the
visibility of results are chosen by people, so they survive a rebuild of all other rows.
"""

from __future__ import annotations

import uuid
from typing import TypedDict

from django.conf import settings
from django.db import models
from django.utils import timezone

from verifier.report import CLOCK
from webapp.leaderboard.columns import SOURCES

PRIVATE, TEAM, EVERYONE = "private", "team", "everyone"
VISIBILITY = [(PRIVATE, "only me"), (TEAM, "the team"), (EVERYONE, "everyone who can sign in")]


class Covering(TypedDict):
    """The columns of an index that answers queries without reading the rows."""

    fields: list[str]
    include: list[str]


# The indexes of the rows that count contain everything that a ranking reads (arrays.py, columns.py), in query order. The rows themselves are
# scattered across the table and are not read.
COVERING: Covering = {
    "fields": ["setup", "entry", "team"],
    "include": [
        "subject", "id", "confirmed", "flagged", "program_class", "eager", "eager_low", "eager_high", "best", "best_low", "best_high", "compile",
        "autotune", "graph", *SOURCES, "team_runs", "public_runs",
    ],
}  # fmt: skip


def current_clock() -> int:
    return CLOCK


class Setup(models.Model):
    """The conditions that must match before two figures can be compared."""

    device_kind = models.CharField(max_length=8)
    device_model = models.CharField(max_length=60)
    device_name = models.CharField(max_length=120, blank=True)
    precision = models.CharField(max_length=12)
    mode = models.CharField(max_length=8)
    clock = models.SmallIntegerField(default=current_clock)  # version of the verifier's clock

    class Meta:
        constraints = [models.UniqueConstraint(fields=["device_model", "precision", "mode", "clock"], name="one_setup")]


class Entry(models.Model):
    """The author of the programs: a workflow with its roles, or the members of a team ("verify")."""

    key = models.CharField(max_length=400, unique=True)
    workflow = models.CharField(max_length=30)
    planner = models.CharField(max_length=64, blank=True)  # "built-in", or a language model profile; empty if people wrote the program
    coder = models.CharField(max_length=64, blank=True)
    judge = models.CharField(max_length=64, blank=True)
    coder_mode = models.CharField(max_length=20, blank=True)
    language = models.CharField(max_length=8, blank=True)  # empty: the device's default
    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE, null=True)  # for programs that people submitted


class Subject(models.Model):
    """A task in the ranking, identified by its source alone, regardless of which team has it. Its name is taken from the rows that the viewer may
    see."""

    sha = models.CharField(max_length=64, unique=True)


class Result(models.Model):
    """The result of a finished run. A ratio is the baseline's time divided by the program's, so a ratio above 1 means that the program is faster.
    Ratios are null unless the result is confirmed."""

    run = models.OneToOneField("runs.Run", on_delete=models.CASCADE, related_name="result")
    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE, db_index=False)
    maker = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    task = models.ForeignKey("tasks.Task", on_delete=models.CASCADE)
    subject = models.ForeignKey(Subject, on_delete=models.PROTECT, db_index=False)
    entry = models.ForeignKey(Entry, on_delete=models.PROTECT, db_index=False)
    setup = models.ForeignKey(Setup, on_delete=models.PROTECT, db_index=False)
    visibility = models.CharField(max_length=8, choices=VISIBILITY, default=TEAM)
    verdict = models.CharField(max_length=12, blank=True)  # copied from Candidate.verdict by a trigger (migration 0001)

    confirmed = models.BooleanField()  # passed the "full" tier on fresh seeds; if false, the run ended without a result
    candidate = models.IntegerField(null=True)
    verification = models.ForeignKey("runs.Verification", on_delete=models.SET_NULL, null=True, related_name="+")
    program_class = models.CharField(max_length=16, blank=True)
    flagged = models.BooleanField(default=False)  # the task proves little: trivial or stochastic
    eager = models.FloatField(null=True)
    eager_low = models.FloatField(null=True)
    eager_high = models.FloatField(null=True)
    best = models.FloatField(null=True)  # speedup over the fastest measured baseline
    best_low = models.FloatField(null=True)
    best_high = models.FloatField(null=True)
    compile = models.FloatField(null=True)
    autotune = models.FloatField(null=True)
    graph = models.FloatField(null=True)
    program_ms = models.FloatField(null=True)
    dollars = models.FloatField(default=0)
    tokens = models.BigIntegerField(default=0)
    calls = models.IntegerField(default=0)
    seconds = models.FloatField(null=True)  # duration of the run
    faster_after = models.FloatField(null=True)  # seconds from the start to the first program that measured faster than eager
    finished_at = models.DateTimeField()
    # The number of runs of which this one is the median, as seen by team members and by everybody else. Null if another run counts. Maintained by
    # Postgres.
    team_runs = models.IntegerField(null=True)
    public_runs = models.IntegerField(null=True)

    class Meta:
        indexes = [
            models.Index(fields=["setup", "entry", "subject", "team"], name="board_group"),
            models.Index(**COVERING, name="board_team_counts", condition=models.Q(team_runs__isnull=False)),
            models.Index(**COVERING, name="board_public_counts", condition=models.Q(public_runs__isnull=False)),
            models.Index(fields=["subject", "setup"], name="board_subject"),
            models.Index(fields=["team", "finished_at"], name="board_team"),
            models.Index(fields=["-finished_at", "-id"], name="board_newest"),
            # Lets index-only scans count the visible rows by each column that can be filtered.
            models.Index(
                fields=["visibility", "team", "setup", "entry", "confirmed", "verdict", "program_class", "maker"], name="board_seen"
            ),
            models.Index(fields=["verdict"], name="board_verdict", condition=~models.Q(verdict="")),
        ]  # fmt: skip


class Provenance(models.Model):
    """The origin of a result's figures, for evidence and exports."""

    result = models.OneToOneField(Result, on_delete=models.CASCADE, primary_key=True, related_name="provenance")
    program_sha = models.CharField(max_length=64, blank=True)
    report_sha = models.CharField(max_length=64, blank=True)  # hash of the stored result that contains the report
    best_baseline = models.CharField(max_length=24, blank=True)
    comparisons = models.JSONField(default=dict)  # keyed by baseline: {ratio, low, high, baseline_ms}
    own_share = models.FloatField(null=True)
    floor_fraction = models.FloatField(null=True)
    peak_bytes = models.BigIntegerField(null=True)
    flags = models.JSONField(default=list)
    environment = models.JSONField(default=dict)  # torch, cuda, driver, compiler, python, threads, report (its schema version)
    outcome = models.CharField(max_length=14, blank=True)
    reason = models.TextField(blank=True)


class Listing(models.Model):
    """A person's choice of who sees a run's result in rankings. Everyone sees the result of a published run regardless of this row."""

    run = models.OneToOneField("runs.Run", on_delete=models.CASCADE, primary_key=True, related_name="listing")
    visibility = models.CharField(max_length=8, choices=VISIBILITY, default=TEAM)


class Preference(models.Model):
    """A team's choice of who sees the results of its future runs."""

    team = models.OneToOneField("accounts.Team", on_delete=models.CASCADE, primary_key=True, related_name="+")
    visibility = models.CharField(max_length=8, choices=VISIBILITY, default=TEAM)


class Opening(models.Model):
    """A team whose published results can be seen without an account. Deleting the row withdraws that access."""

    team = models.OneToOneField("accounts.Team", on_delete=models.CASCADE, primary_key=True, related_name="+")
    by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    at = models.DateTimeField(default=timezone.now)


class Suite(models.Model):
    """Tasks that are ranked together, identified by the hashes of their sources."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE, related_name="ranked_suites")
    name = models.CharField(max_length=100)
    description = models.TextField(blank=True)
    visibility = models.CharField(max_length=8, choices=VISIBILITY, default=TEAM)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    changed_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["team", "name"], name="one_ranked_suite_a_name")]
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class SuiteTask(models.Model):
    suite = models.ForeignKey(Suite, on_delete=models.CASCADE, related_name="tasks")
    position = models.IntegerField()
    sha = models.CharField(max_length=64)
    name = models.CharField(max_length=120)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["suite", "sha"], name="one_task_a_ranked_suite")]
        ordering = ["position"]
