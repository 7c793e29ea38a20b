"""Computes a waiting run's position among the jobs for its device or for the orchestrators, in the order of turns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from statistics import median

from django.db.models import F, Q
from django.utils import timezone
from procrastinate.contrib.django.models import ProcrastinateJob

from webapp.fleet.models import ONLINE_FOR, Device
from webapp.runs.jobs import ORCHESTRATOR, queues_of
from webapp.runs.models import Run, Turn, Verification

MOST_COUNTED = 1000  # maximum number of jobs counted ahead of a job; beyond it the page says "more than"
RECENT_JOBS = 100
LOOKED_BACK = timedelta(days=14)

Owner = tuple[str, str, str]  # team, person, run


@dataclass(frozen=True)
class Standing:
    """A run's position in a queue.

    `before` is the number of jobs that will begin sooner, and `at_work` is the number of running jobs. `seconds` is the estimated time until the
    run's own job begins, if recent jobs allow an estimate. `online` is the number of verifiers that take jobs. `needs_sandbox` is set if verifiers
    are online but none can take a job; it says why and how to fix it.
    """

    what: str  # "verifier" or "orchestrator"; "" if the run has no waiting job
    before: int = 0
    at_work: int = 0
    seconds: float | None = None
    online: int = 0
    device: str = ""  # "cpu", "cuda"
    needs_sandbox: str = ""


@dataclass(frozen=True)
class Waiting:
    job: int
    priority: int
    owner: Owner


def standing_of(run: Run) -> Standing:
    if run.state == "finished":
        return Standing("")
    waiting = run.verifications.filter(state="queued").order_by("queued_at").first()
    if waiting is None and run.state != "queued":
        return Standing("")
    queue = waiting.queue if waiting else ORCHESTRATOR
    here, at_work = jobs_of(queue.partition(":")[0])
    mine = (str(run.team_id), str(run.created_by_id or ""), str(run.pk))
    before = places_before(here, turns(queue), lambda job: job.owner == mine)
    kind = run.device_kind
    devices = list(Device.objects.filter(kind=kind, heartbeat_at__gt=timezone.now() - ONLINE_FOR))
    devices = [device for device in devices if waiting is None or waiting.queue in queues_of(device.device, device.model)]
    lacking = [device.needs_sandbox for device in devices if device.needs_sandbox]
    online = len(devices) - len(lacking)
    each = _each_takes(queue) if waiting else None
    seconds = None if each is None or not online else each * (before + at_work / 2) / online
    return Standing("verifier" if waiting else "orchestrator", before, at_work, seconds, online, kind, "" if online else next(iter(lacking), ""))


def jobs_of(queue: str) -> tuple[list[Waiting], int]:
    """Return the jobs waiting in a queue and in the queues of its devices, and the number of running jobs."""
    here = Q(queue_name=queue) | Q(queue_name__startswith=f"{queue}:")
    rows = list(ProcrastinateJob.objects.filter(here, status__in=("todo", "doing")).values_list("id", "priority", "status", "task_name", "args"))
    waiting = [row for row in rows if row[2] == "todo"]
    of_verification = {row[4].get("verification_id") for row in waiting if row[3] == "verify"}
    of_run = {row[4].get("run_id") for row in waiting if row[3] == "run_workflow"}
    owners: dict[str | None, Owner] = {}
    runs = Run.objects.filter(pk__in=of_run - {None}).values_list("pk", "team_id", "created_by_id", "pk")
    verifications = Verification.objects.filter(pk__in=of_verification - {None})
    for pk, team, person, run in [*runs, *verifications.values_list("pk", "run__team_id", "run__created_by_id", "run_id")]:
        owners[str(pk)] = (str(team), str(person or ""), str(run))
    nobody = ("", "", "")  # a job that belongs to no run is scheduled as if it were a team
    names = [(row[0], row[1], row[4].get("verification_id") or row[4].get("run_id")) for row in waiting]
    return [Waiting(job, priority, owners.get(name, nobody)) for job, priority, name in names], len(rows) - len(waiting)


def turns(queue: str) -> dict[str, float]:
    """Return the time of each owner's last turn, keyed by `Turn.who`."""
    return {who: at.timestamp() for who, at in Turn.objects.filter(queue=queue.partition(":")[0]).values_list("who", "at")}


def places_before(jobs: list[Waiting], last: dict[str, float], mine: Callable[[Waiting], bool]) -> int:
    """Return the number of jobs that begin before the first job that is `mine`, assuming that jobs run one after another.

    The next job belongs to the team whose turn was longest ago, and within that team to the person and then the run chosen in the same way
    (`webapp/runs/workers/fairness.py`). Being chosen counts as their turn. The result is at most `MOST_COUNTED`.
    """
    last, now = dict(last), max(last.values(), default=0.0)
    left = sorted(jobs, key=lambda job: (-job.priority, job.job))
    for place in range(min(len(left), MOST_COUNTED)):
        urgent = [job for job in left if job.priority == left[0].priority]
        names = {job.job: ["/".join(job.owner[:depth]) for depth in (1, 2, 3)] for job in urgent}
        following = min(urgent, key=lambda job: ([last.get(name, -1.0) for name in names[job.job]], job.job))
        if mine(following):
            return place
        now += 1
        last |= dict.fromkeys(names[following.job], now)
        left.remove(following)
    return min(len(left), MOST_COUNTED)


def _each_takes(queue: str) -> float | None:
    """Return the median duration in seconds of the queue's recent jobs."""
    recent = Verification.objects.filter(queue__startswith=queue.partition(":")[0], state="finished", started_at__isnull=False)
    recent = recent.filter(finished_at__gt=timezone.now() - LOOKED_BACK).order_by("-finished_at")
    took = list(recent.annotate(took=F("finished_at") - F("started_at")).values_list("took", flat=True)[:RECENT_JOBS])
    return median(duration.total_seconds() for duration in took) if took else None
