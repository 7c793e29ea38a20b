"""Which workflow a team's arenas have found best: what the automatic choice follows once they say enough."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from math import log

from agents.choices.workflows import ROLES
from webapp.accounts.models import Team
from webapp.arena.models import Arena
from webapp.runs.models import Run

FEWEST_TASKS = 8  # that two workflows have both ended on
LATEST = 5  # arenas that are looked at, the newest first
BUILT_IN = "built-in"


def preferred(team: Team, device_kind: str, models: Iterable[str]) -> str | None:
    """The best workflow of the newest arena that compared two or more with these models on this kind of device; None where there is no such arena.

    Best by the mean logarithm of the speedup's lower bound over eager, 1 where a run found nothing, over the tasks that all of them have ended on.
    """
    wanted = set(models)
    for arena in Arena.objects.filter(team=team).order_by("-created_at")[:LATEST]:
        runs = Run.objects.filter(arena_entry__arena=arena, device_kind=device_kind, state="finished").exclude(outcome="cancelled")
        gains: dict[str, dict[int, float]] = defaultdict(dict)
        for run in runs.only("workflow", "task_id", "speedup", "settings"):
            if {run.settings.get(role) or BUILT_IN for role in ROLES} == wanted:
                low = (run.speedup or {}).get("low") or 1.0
                gains[run.workflow][run.task_id] = max(log(max(low, 1.0)), gains[run.workflow].get(run.task_id, 0.0))
        shared = set.intersection(*map(set, gains.values())) if len(gains) > 1 else set()
        if len(shared) >= FEWEST_TASKS:
            return max(sorted(gains), key=lambda workflow: sum(gains[workflow][task] for task in shared))
    return None
