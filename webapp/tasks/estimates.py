"""What a run will probably cost, and when its device begins with it: from what finished runs like it have spent, never from a formula."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from statistics import median, quantiles
from typing import Any

from django.db.models import Avg, F, Q, QuerySet
from django.utils import timezone

from webapp.accounts.models import Team
from webapp.fleet.models import ONLINE_FOR, Device
from webapp.runs.models import Run, Verification
from webapp.tasks.models import TryOut

FEWEST = 3  # runs below which nothing is said
MOST = 60  # latest runs that are looked at
RECENT_JOBS = 200
LOOKED_BACK = timedelta(days=14)
UNITS = ("seconds", "verifier_seconds", "tokens", "dollars", "candidates")


@dataclass(frozen=True)
class Spread:
    """Quartiles over past runs."""

    low: float
    middle: float
    high: float

    @classmethod
    def of(cls, values: list[float]) -> Spread:
        low, middle, high = quantiles(values, n=4, method="inclusive")
        return cls(low, middle, high)


@dataclass(frozen=True)
class Estimate:
    runs: int  # that it is from
    like: str  # what they have in common with the run to come: "stitch on CPU with fast"
    spent: dict[str, Spread]
    success: float | None = None  # share that found something faster

    @property
    def known(self) -> bool:
        return self.runs >= FEWEST


@dataclass(frozen=True)
class Queue:
    """What stands before a new run on the devices of a kind."""

    online: int
    running: int
    waiting: int
    seconds: float | None  # until its first job begins, about; None where nothing tells

    @property
    def before(self) -> int:
        return self.running + self.waiting


def estimate(teams: QuerySet[Any], *, workflow: str, device_kind: str, models: set[str], task_sha: str = "") -> Estimate:
    """Of the same task where it has been run often enough, else of all tasks. `models` are the profiles of the three roles."""
    past = Run.objects.filter(team__in=teams, workflow=workflow, device_kind=device_kind, state="finished")
    past = past.exclude(outcome="cancelled").exclude(spent={}).order_by("-finished_at").only("spent", "settings", "outcome")
    like = f"{workflow} on {'the CPU' if device_kind == 'cpu' else 'a GPU'} with {' and '.join(sorted(models))}"
    same = [run for run in past.filter(task__sha=task_sha)[:MOST] if _models(run.settings) == models] if task_sha else []
    found = same if len(same) >= FEWEST else [run for run in past[: MOST * 3] if _models(run.settings) == models][:MOST]
    if len(found) < FEWEST:
        return Estimate(len(found), like, {})
    spent = {unit: Spread.of([float(run.spent.get(unit) or 0) for run in found]) for unit in UNITS}
    said = f"this task, {like}" if found is same else like
    return Estimate(len(found), said, spent, sum(run.outcome == "improved" for run in found) / len(found))


def of_run(run: Run) -> Estimate:
    """What runs like one that is there already took."""
    team = Team.objects.filter(pk=run.team_id)
    return estimate(team, workflow=run.workflow, device_kind=run.device_kind, models=_models(run.settings), task_sha=run.task.sha)


def _models(settings: dict[str, Any]) -> set[str]:
    return {settings.get(role) or "built-in" for role in ("planner", "coder", "judge")}


def queue(device_kind: str) -> Queue:
    """Jobs that are asked for on this kind of device, and how long they will take there, by how long its recent ones took."""
    online = Device.objects.filter(kind=device_kind, heartbeat_at__gt=timezone.now() - ONLINE_FOR).count()
    here = Q(queue=f"verify.{device_kind}") | Q(queue__startswith=f"verify.{device_kind}:")
    open_jobs = Verification.objects.filter(here).exclude(state="finished").exclude(run__state="finished").exclude(run__imported=True)
    running, waiting = open_jobs.filter(state="running").count(), open_jobs.filter(state="queued").count()
    # A run that waits for an orchestrator has not asked for its first job yet.
    waiting += Run.objects.filter(state="queued", device_kind=device_kind, imported=False).count()
    recent = Verification.objects.filter(here, state="finished", started_at__isnull=False, finished_at__gt=timezone.now() - LOOKED_BACK)
    durations = recent.order_by("-finished_at").annotate(took=F("finished_at") - F("started_at")).values_list("took", flat=True)
    took = [duration.total_seconds() for duration in durations[:RECENT_JOBS]]
    if not running + waiting:
        return Queue(online, 0, 0, 0.0)
    return Queue(online, running, waiting, median(took) * (waiting + running / 2) / max(1, online) if took else None)


def try_out_seconds(device_kind: str) -> float | None:
    """How long trying a source out takes on this kind of device."""
    took = TryOut.objects.filter(device_kind=device_kind, state="finished", error="", started_at__isnull=False)
    mean = took.aggregate(mean=Avg(F("finished_at") - F("started_at")))["mean"]
    return mean.total_seconds() if mean else None
