"""Lists individual results, one per finished run: those behind an entry's figures, and those that a verdict excluded from the ranking."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Q, QuerySet
from django.http import QueryDict

from webapp.accounts.access import Asker, teams_with, user_of
from webapp.leaderboard.filters import MANY, SOLVING, Filters, is_uuid
from webapp.leaderboard.models import EVERYONE, TEAM, Entry, Result, Setup
from webapp.leaderboard.shown.opening import opened_teams, signed_in
from webapp.leaderboard.suites import choose
from webapp.review.models import Verdict
from webapp.review.standing import UNRANKED
from webapp.tasks.models import Task

STATES = {
    "": ("All", Q()),
    "confirmed": ("Confirmed", Q(confirmed=True) & ~Q(verdict__in=UNRANKED)),
    "unsolved": ("Without a result", Q(confirmed=False) & ~Q(verdict__in=UNRANKED)),
    "left_out": ("Left out by a verdict", Q(verdict__in=UNRANKED)),
}


@dataclass(frozen=True)
class Place:
    """Restrictions on a list of results, in addition to the filters."""

    state: str = ""
    task: str = ""  # the id of one of the requester's tasks, or the hash of a task's source
    entry: str = ""
    run: str = ""  # the run to highlight
    text: str = ""

    @classmethod
    def read(cls, query: QueryDict) -> Place:
        said = {name: query.get("q" if name == "text" else name, "").replace("\0", "").strip()[:140] for name in cls.__dataclass_fields__}
        return cls(**(said | {"state": said["state"] if said["state"] in STATES else ""}))

    @property
    def kept(self) -> list[tuple[str, str]]:
        """Return the parameters that are kept when a filter changes."""
        return [("state", self.state), ("task", self.task), ("entry", self.entry)]


def visible(asker: Asker) -> QuerySet[Result]:
    """Return the results that the requester may see: published results, those of their teams, and their own.

    People without an account see only published results of teams that have opened them to everybody.
    """
    if not signed_in(asker):
        return Result.objects.filter(visibility=EVERYONE, team__in=opened_teams())
    teams = list(teams_with(asker).values_list("pk", flat=True))
    return Result.objects.filter(Q(visibility=EVERYONE) | (Q(team__in=teams) & (Q(visibility=TEAM) | Q(maker=user_of(asker)))))


def found(asker: Asker, filters: Filters, place: Place) -> QuerySet[Result]:
    results = visible(asker).filter(STATES[place.state][1])
    setup = {"device_model": filters.device, "precision": filters.precision, "mode": filters.mode, "clock": filters.clock}
    entry = {"workflow": filters.workflow, "planner": filters.planner, "coder": filters.coder, "language": filters.language}
    setup, entry = ({name: value for name, value in said.items() if value} for said in (setup, entry))
    # Both tables are small, and the index that counts results contains their ids.
    if setup:
        results = results.filter(setup__in=list(Setup.objects.filter(**setup).values_list("pk", flat=True)))
    if entry or filters.llm:
        entries = Entry.objects.filter(**entry)
        if filters.llm == "built-in":
            entries = entries.filter(planner="built-in", coder="built-in", judge="built-in")
        elif filters.llm:
            entries = entries.filter(Q(planner=filters.llm) | Q(coder=filters.llm) | Q(judge=filters.llm))
        results = results.filter(entry__in=list(entries.values_list("pk", flat=True)))
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
    """Sort newest first or, for a single task, by the lower bound of the interval."""
    if not task:
        return results.order_by("-finished_at", "-pk")
    sha = Task.objects.filter(pk=task).values_list("sha", flat=True).first() if is_uuid(task) else task
    return results.filter(subject__sha=sha or "").order_by("setup", "flagged", "-confirmed", "-eager_low", "pk")


def _searched(results: QuerySet[Result], text: str) -> QuerySet[Result]:
    for word in text.split()[:8]:
        tasks = Task.objects.filter(Q(name__icontains=word) | Q(suite__name__icontains=word))
        entries = Entry.objects.filter(Q(workflow__icontains=word) | Q(planner__icontains=word) | Q(coder__icontains=word))
        results = results.filter(Q(task__in=tasks.values("pk")) | Q(entry__in=list(entries.values_list("pk", flat=True))))
    return results


def with_evidence(results: QuerySet[Result]) -> QuerySet[Result]:
    """Join only the tables that have a separate row for each result. Planning a join of all nine tables would take fifty times as long as reading the
    rows."""
    joined = results.select_related("run", "task", "provenance", "setup").prefetch_related("team", "entry__team")
    return joined.defer("run__settings", "run__spent", "run__reason", "task__source", "task__flags")


def standing_verdicts(results: list[Result]) -> dict[int, Verdict]:
    """Return, for each result, the verdict that excluded it from the ranking and who gave it."""
    judged = {(result.run_id, result.candidate): result.pk for result in results if result.verdict in UNRANKED}
    if not judged:
        return {}
    rows = Verdict.objects.filter(run__in=[run for run, _ in judged]).select_related("by").order_by("run", "candidate", "-id")
    return {judged[row.run_id, row.candidate]: row for row in rows.distinct("run", "candidate") if (row.run_id, row.candidate) in judged}
