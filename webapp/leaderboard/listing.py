"""Single results, one a finished run: what an entry's figures are made of, and what a verdict took out of the ranking."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Q, QuerySet
from django.http import QueryDict

from webapp.accounts.access import Asker, teams_with, user_of
from webapp.leaderboard.filters import MANY, SOLVING, Filters, is_uuid
from webapp.leaderboard.models import EVERYONE, TEAM, Result
from webapp.leaderboard.suites import choose
from webapp.review.models import Verdict
from webapp.review.verdicts import UNRANKED
from webapp.tasks.models import Task

STATES = {
    "": ("All", Q()),
    "confirmed": ("Confirmed", Q(confirmed=True) & ~Q(verdict__in=UNRANKED)),
    "unsolved": ("Without a result", Q(confirmed=False) & ~Q(verdict__in=UNRANKED)),
    "left_out": ("Left out by a verdict", Q(verdict__in=UNRANKED)),
}


@dataclass(frozen=True)
class Place:
    """What a list of results is narrowed to besides the filters."""

    state: str = ""
    task: str = ""  # id of one's own task, or the hash of a source
    entry: str = ""
    run: str = ""  # to be pointed out
    text: str = ""

    @classmethod
    def read(cls, query: QueryDict) -> Place:
        said = {name: query.get("q" if name == "text" else name, "").replace("\0", "").strip()[:140] for name in cls.__dataclass_fields__}
        return cls(**(said | {"state": said["state"] if said["state"] in STATES else ""}))

    @property
    def kept(self) -> list[tuple[str, str]]:
        """What stays when a filter changes."""
        return [("state", self.state), ("task", self.task), ("entry", self.entry)]


def visible(asker: Asker) -> QuerySet[Result]:
    """Results that the asker may see: published ones, those of their teams, and their own."""
    user = user_of(asker)
    return Result.objects.filter(Q(visibility=EVERYONE) | Q(visibility=TEAM, team__in=teams_with(asker)) | Q(maker=user, team__in=teams_with(asker)))


def found(asker: Asker, filters: Filters, place: Place) -> QuerySet[Result]:
    results = visible(asker).filter(STATES[place.state][1])
    exact = {
        "setup__device_model": filters.device, "setup__precision": filters.precision, "setup__mode": filters.mode,
        "entry__workflow": filters.workflow, "entry__planner": filters.planner, "entry__coder": filters.coder, "entry__language": filters.language,
    }  # fmt: skip
    results = results.filter(**{name: value for name, value in exact.items() if value})
    if filters.llm == "built-in":
        results = results.filter(entry__planner="built-in", entry__coder="built-in", entry__judge="built-in")
    elif filters.llm:
        results = results.filter(Q(entry__planner=filters.llm) | Q(entry__coder=filters.llm) | Q(entry__judge=filters.llm))
    if filters.program_class:
        results = results.filter(Q(confirmed=False) | Q(program_class__in=SOLVING[filters.program_class]))
    if filters.whose:
        results = results.filter(team__in=teams_with(asker)) if filters.whose == "ours" else results.filter(visibility=EVERYONE)
    if filters.suite and filters.suite != MANY:
        suite = choose(asker, filters.suite)
        results = results.filter(subject__sha__in=suite.names) if suite else results.none()
    if place.entry:
        results = results.filter(entry=int(place.entry)) if place.entry.isdigit() and len(place.entry) < 18 else results.none()
    return _of_task(_searched(results, place.text), place.task)


def _of_task(results: QuerySet[Result], task: str) -> QuerySet[Result]:
    """In the order of the newest, or of one task by the lower bound of the interval."""
    if not task:
        return results.order_by("-finished_at", "-pk")
    sha = Task.objects.filter(pk=task).values_list("sha", flat=True).first() if is_uuid(task) else task
    return results.filter(subject__sha=sha or "").order_by("setup", "flagged", "-confirmed", "-eager_low", "pk")


def _searched(results: QuerySet[Result], text: str) -> QuerySet[Result]:
    for word in text.split()[:8]:
        tasks = Task.objects.filter(Q(name__icontains=word) | Q(suite__name__icontains=word))
        by_entry = Q(entry__workflow__icontains=word) | Q(entry__planner__icontains=word) | Q(entry__coder__icontains=word)
        results = results.filter(Q(task__in=tasks) | by_entry)
    return results


def with_evidence(results: QuerySet[Result]) -> QuerySet[Result]:
    return results.select_related("run", "task", "team", "entry", "entry__team", "setup", "provenance")


def standing_verdicts(results: list[Result]) -> dict[int, Verdict]:
    """By result, of those that a verdict took out: what was said and by whom."""
    judged = {(result.run_id, result.candidate): result.pk for result in results if result.verdict in UNRANKED}
    if not judged:
        return {}
    rows = Verdict.objects.filter(run__in=[run for run, _ in judged]).select_related("by").order_by("run", "candidate", "-id")
    return {judged[row.run_id, row.candidate]: row for row in rows.distinct("run", "candidate") if (row.run_id, row.candidate) in judged}
