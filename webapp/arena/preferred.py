"""The workflow that performed best in a team's arenas. The automatic choice uses it once there is enough evidence."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable
from math import log

from agents.choices.workflows import ROLES
from webapp.accounts.models import Team
from webapp.arena.models import Arena
from webapp.runs.models import Run

FEWEST_TASKS = 8  # minimum number of tasks that all compared workflows have finished
LATEST = 5  # number of arenas considered, newest first
BUILT_IN = "built-in"


def preferred(team: Team, device_kind: str, models: Iterable[str]) -> str | None:
    """Returns the best workflow of the newest arena that compared at least two workflows with these models on this kind of device, or None if there
    is no such arena.

    The ranking uses the mean logarithm of the lower bound of the speedup over eager, averaged over the tasks that all workflows have finished. A run
    that found nothing counts as 1.
    """
    wanted = set(models)
    for arena in Arena.objects.filter(team=team).order_by("-created_at")[:LATEST]:
        runs = Run.objects.filter(arena_entry__arena=arena, device_kind=device_kind, state="finished").exclude(outcome="cancelled")
        gains: dict[str, dict[uuid.UUID, float]] = defaultdict(dict)
        for run in runs.only("workflow", "task_id", "speedup", "settings"):
            if {run.settings.get(role) or BUILT_IN for role in ROLES} == wanted:
                low = (run.speedup or {}).get("low") or 1.0
                gains[run.workflow][run.task_id] = max(log(max(low, 1.0)), gains[run.workflow].get(run.task_id, 0.0))
        shared = set.intersection(*map(set, gains.values())) if len(gains) > 1 else set()
        if len(shared) >= FEWEST_TASKS:
            return max(sorted(gains), key=lambda workflow: sum(gains[workflow][task] for task in shared))
    return None
