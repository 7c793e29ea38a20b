"""The one query for "verified and ranked": the page, the exports and everything else that ranks use it."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

from django.db.models import Case, IntegerField, Q, QuerySet, Value, When
from django.db.models.functions import Coalesce
from django.http import QueryDict

from webapp.runs.models import Verification

# A task with one of these proves little: such results are shown, apart from rankings.
UNRANKED = frozenset({"trivial", "stochastic"})


@dataclass(frozen=True)
class Filters:
    """What a viewer selects; empty is everything. From the query string, and back into exports."""

    text: str = ""
    task: str = ""
    device: str = ""
    precision: str = ""
    program_class: str = ""
    workflow: str = ""
    whose: str = ""  # "", "ours", "published"

    @classmethod
    def read(cls, query: QueryDict) -> Filters:
        names = {"text": "q", "program_class": "class"}
        return cls(**{name: query.get(names.get(name, name), "").replace("\0", "").strip()[:140] for name in cls.__dataclass_fields__})

    def apply(self, results: QuerySet[Verification]) -> QuerySet[Verification]:
        exact = {
            "run__task_id": self.task,
            "device_model": self.device,
            "run__precision": self.precision,
            "run__workflow": self.workflow,
        }
        if self.task and not is_uuid(self.task):
            return results.none()
        results = results.filter(**{name: value for name, value in exact.items() if value})
        if self.program_class:
            results = results.filter(program_class__in=self.program_class.split("+"))
        for word in self.text.split()[:8]:
            results = results.filter(Q(run__task__name__icontains=word) | Q(run__title__icontains=word) | Q(run__task__suite__name__icontains=word))
        return results


def is_uuid(text: str) -> bool:
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True


@dataclass(frozen=True)
class Result:
    """One row: the confirmed result of one run, measured on one device. Times in milliseconds."""

    rank: int | None  # within its group; None for a flagged task
    task: str
    task_id: str
    suite: str
    run: str
    title: str
    candidate: int | None
    workflow: str
    agent: str
    team: str
    ours: bool
    can_write: bool
    published: bool
    device_model: str
    device_name: str
    device_kind: str
    precision: str
    mode: str
    speedup: dict[str, float | None]  # against eager
    best_baseline: str
    best_baseline_speedup: float | None
    program_class: str
    own_share: float | None
    program_ms: float | None
    flags: list[str] = field(default_factory=list)
    measured_at: str = ""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Results are comparable only within one task, device model, precision and mode."""
        return (self.task_id, self.device_model, self.precision, self.mode)


@dataclass(frozen=True)
class Group:
    task: str
    task_id: str
    suite: str
    device_name: str
    device_kind: str
    precision: str
    mode: str
    rows: list[Result]


def eligible(user) -> QuerySet[Verification]:
    """Passed full verifications that the user may see, one a run: that of the run's best candidate, the newest where there are several."""
    passed = Verification.objects.filter(kind="verify", tier="full", status="passed", speedup__isnull=False)
    visible = passed.filter(Q(run__team__in=user.teams.all()) | Q(run__published=True))
    # The same confirmation is never picked for being the luckiest of several: best candidate first, then the newest.
    is_best = Case(When(candidate_number=Coalesce("run__best_candidate", Value(-1)), then=0), default=1, output_field=IntegerField())
    chosen = visible.order_by("run_id", is_best, "-finished_at").distinct("run_id")
    return Verification.objects.filter(pk__in=chosen.values("pk")).select_related("run", "run__task", "run__task__suite", "run__team")


def ranked(user, filters: Filters) -> list[Group]:
    """Groups by task and device; within each, by the lower bound of the interval, flagged tasks without a rank."""
    teams = {team.pk for team in user.teams.all()}
    writable = set(user.membership_set.exclude(role="viewer").values_list("team_id", flat=True))
    found = filters.apply(eligible(user))
    if filters.whose == "ours":
        found = found.filter(run__team__in=teams)
    elif filters.whose == "published":
        found = found.filter(run__published=True)
    groups: dict[tuple, list[Verification]] = {}
    for result in found:
        key = (str(result.run.task_id), result.device_model, result.run.precision, (result.run.settings or {}).get("mode", "train"))
        groups.setdefault(key, []).append(result)
    made = [_group(results, key[3], teams, writable) for key, results in groups.items()]
    return sorted(made, key=lambda group: (group.suite, group.task.lower(), group.device_kind, group.device_name, group.precision))


def _group(results: Iterable[Verification], mode: str, teams: set, writable: set) -> Group:
    ordered = sorted(results, key=lambda v: (-(v.speedup_low or v.speedup), -v.speedup))
    rows, rank = [], 0
    for verification in ordered:
        flagged = bool(UNRANKED & set(verification.flags))
        rank += not flagged
        rows.append(_result(verification, None if flagged else rank, mode, teams, writable))
    first = rows[0]
    return Group(first.task, first.task_id, first.suite, first.device_name, first.device_kind, first.precision, mode, rows)


def _result(verification: Verification, rank: int | None, mode: str, teams: set, writable: set) -> Result:
    run = verification.run
    settings = run.settings or {}
    return Result(
        rank=rank,
        task=run.task.name,
        task_id=str(run.task_id),
        suite=run.task.suite.name if run.task.suite else "",
        run=str(run.pk),
        title=run.title,
        candidate=verification.candidate_number,
        workflow=run.workflow,
        agent="own program" if run.workflow == "verify" else str(settings.get("coder", "built-in")),
        team=run.team.name,
        ours=run.team_id in teams,
        can_write=run.team_id in writable,
        published=run.published,
        device_model=verification.device_model,
        device_name=verification.device_name,
        device_kind=run.device_kind,
        precision=run.precision,
        mode=mode,
        speedup={"ratio": verification.speedup, "low": verification.speedup_low, "high": verification.speedup_high},
        best_baseline=verification.best_baseline,
        best_baseline_speedup=verification.best_baseline_speedup,
        program_class=verification.program_class,
        own_share=verification.own_share,
        program_ms=verification.program_ms,
        flags=list(verification.flags),
        measured_at=verification.finished_at.isoformat() if verification.finished_at else "",
    )


def exported(groups: list[Group]) -> list[dict]:
    """Flat rows for CSV and JSON: figures with their units in the name."""
    rows = []
    for group in groups:
        for result in group.rows:
            row = asdict(result)
            speedup = row.pop("speedup")
            for name in ("ours", "can_write"):
                row.pop(name)
            row.update(speedup_vs_eager=speedup["ratio"], speedup_low=speedup["low"], speedup_high=speedup["high"])
            rows.append(row)
    return rows
