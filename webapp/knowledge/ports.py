"""The engine's access to a team's knowledge: its documents, and the lessons from earlier runs."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from agents.knowledge import RELEVANT, cited_as
from agents.memory.inspirations import Inspiration, Split, ranked
from agents.ports import Passage
from webapp.database import in_thread
from webapp.knowledge.models import Learned
from webapp.knowledge.search import any_of, search
from webapp.runs.models import Run
from webapp.runs.workers.additions import Knowledge
from webapp.tasks.models import Suite, Task

LATEST = 5000  # maximum number of lessons considered; older ones have been superseded


class TeamLibrary:
    """Implements `agents.ports.Library` with the documents of one team."""

    def __init__(self, team: uuid.UUID):
        self.team = team

    async def search(self, query: str, count: int) -> list[Passage]:
        return await in_thread(self._search)(query, count)

    def _search(self, query: str, count: int) -> list[Passage]:
        wanted = any_of(query)
        hits = search([self.team], wanted, count) if wanted else []
        return [
            Passage(f"{hit.document}/{hit.index}", cited_as(hit.title, hit.heading), hit.text) for hit in hits if hit.rank >= RELEVANT * hits[0].rank
        ]


class TeamInspirations:
    """Implements `agents.memory.Inspirations` with the finished runs of one team."""

    def __init__(self, team: uuid.UUID):
        self.team = team

    async def find(self, operators: Sequence[str], device: str, exclude: Split) -> list[Inspiration]:
        return await in_thread(self._find)(operators, device, exclude)

    def _find(self, operators: Sequence[str], device: str, exclude: Split) -> list[Inspiration]:
        held_back = Task.objects.filter(suite__name__in=exclude.suites).values("sha")  # every team's copies, because the benchmark is the same
        rows = (
            Learned.objects.filter(team=self.team, confirmed=True, outcome="gained", device=device.partition(":")[0])
            .exclude(task_sha__in=exclude.tasks)
            .exclude(task_sha__in=held_back)
            .order_by("-at")[:LATEST]
        )
        return ranked(map(_inspiration, rows), operators, device)


def knowledge_of(run: Run) -> Knowledge:
    """Returns what a run of the team may look up."""
    return Knowledge(TeamLibrary(run.team_id), TeamInspirations(run.team_id), split_of(run))


def split_of(run: Run) -> Split:
    """Returns the tasks that a run must not learn from: its own task, and every task in a suite that contains it. All KernelBench levels count as one
    benchmark."""
    suites = Suite.objects.filter(tasks__sha=run.task.sha)
    names = set(suites.values_list("name", flat=True))
    for slug in suites.filter(slug__contains="-level").values_list("slug", flat=True):
        names |= set(Suite.objects.filter(slug__startswith=slug.partition("-level")[0] + "-level").values_list("name", flat=True))
    return Split(tasks=frozenset([run.task.sha]), suites=frozenset(names))


def _inspiration(row: Learned) -> Inspiration:
    return Inspiration(
        strategy=row.strategy, operators=row.operators, device=row.device, device_model=row.device_model, gain=row.realised or 1.0,
        expected=row.expected, speedup=row.speedup, changes=row.changes, task=row.task_sha, task_name=row.task_name, run=str(row.run_id),
        candidate=row.candidate,
    )  # fmt: skip
