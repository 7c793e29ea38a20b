"""Estimates a run's cost and its start time on a device, based only on similar finished runs and never on a formula."""

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

FEWEST = 3  # minimum number of runs for an estimate
MOST = 60  # number of latest runs considered
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
    runs: int  # number of runs that the estimate is based on
    like: str  # what these runs have in common with the planned one, such as "stitch on CPU with fast"
    spent: dict[str, Spread]
    success: float | None = None  # share of the runs that found a faster program

    @property
    def known(self) -> bool:
        return self.runs >= FEWEST


@dataclass(frozen=True)
class Queue:
    """The queue ahead of a new run on one kind of device."""

    online: int
    running: int
    waiting: int
    seconds: float | None  # estimated time until the run's first job begins; None if there is no data

    @property
    def before(self) -> int:
        return self.running + self.waiting


def estimate(teams: QuerySet[Any], *, workflow: str, device_kind: str, models: set[str], task_sha: str = "") -> Estimate:
    """Estimate from earlier runs of the same task if there are enough of them, or else from runs of all tasks.

    `models` are the profiles of the three roles.
    """
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
    """Return an estimate based on runs similar to an existing one."""
    team = Team.objects.filter(pk=run.team_id)
    return estimate(team, workflow=run.workflow, device_kind=run.device_kind, models=_models(run.settings), task_sha=run.task.sha)


def _models(settings: dict[str, Any]) -> set[str]:
    return {settings.get(role) or "built-in" for role in ("planner", "coder", "judge")}


def queue(device_kind: str) -> Queue:
    """Return the number of jobs requested for this kind of device and their expected total time, based on recent durations."""
    online = Device.objects.filter(kind=device_kind, heartbeat_at__gt=timezone.now() - ONLINE_FOR).count()
    here = Q(queue=f"verify.{device_kind}") | Q(queue__startswith=f"verify.{device_kind}:")
    open_jobs = Verification.objects.filter(here).exclude(state="finished").exclude(run__state="finished").exclude(run__imported=True)
    running, waiting = open_jobs.filter(state="running").count(), open_jobs.filter(state="queued").count()
    # A run that waits for an orchestrator has not yet requested its first job.
    waiting += Run.objects.filter(state="queued", device_kind=device_kind, imported=False).count()
    recent = Verification.objects.filter(here, state="finished", started_at__isnull=False, finished_at__gt=timezone.now() - LOOKED_BACK)
    durations = recent.order_by("-finished_at").annotate(took=F("finished_at") - F("started_at")).values_list("took", flat=True)
    took = [duration.total_seconds() for duration in durations[:RECENT_JOBS]]
    if not running + waiting:
        return Queue(online, 0, 0, 0.0)
    return Queue(online, running, waiting, median(took) * (waiting + running / 2) / max(1, online) if took else None)


def try_out_seconds(device_kind: str) -> float | None:
    """Return how long it takes to try out a source on this kind of device."""
    took = TryOut.objects.filter(device_kind=device_kind, state="finished", error="", started_at__isnull=False)
    mean = took.aggregate(mean=Avg(F("finished_at") - F("started_at")))["mean"]
    return mean.total_seconds() if mean else None
