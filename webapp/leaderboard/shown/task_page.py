"""The contents of a task's page: its ranking, its record over time, and the baselines that every result was measured against."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from statistics import median
from typing import Any

from django.db.models import Count, QuerySet
from django.http import QueryDict
from django.urls import reverse

from verifier.report import CLOCK
from webapp.leaderboard.entries import named
from webapp.leaderboard.listing import with_evidence
from webapp.leaderboard.models import Result, Setup
from webapp.leaderboard.pictures import PLOTTED, plotted
from webapp.leaderboard.shown.headlines import left_out, of_result
from webapp.runs.headline import NAMES, Headline

MOST_ROWS = 200  # rows of the ranking; the page links to all results of the task
MOST_POINTS = 2000  # newest points shown in the plots


@dataclass(frozen=True)
class Line:
    result: Result
    name: str
    headline: Headline
    rank: int | None  # null if the result is not confirmed, flagged, or excluded by a verdict
    record: bool  # better than all earlier results


@dataclass(frozen=True)
class Baseline:
    name: str
    ms: float  # median over the results
    times: int  # number of results that include a measurement of this baseline
    best: bool


@dataclass(frozen=True)
class Standing:
    setup: Setup | None
    setups: list[tuple[Setup, int]]  # each with its number of results
    lines: list[Line]
    baselines: list[Baseline]
    total: int

    @property
    def best(self) -> Line | None:
        return next((line for line in self.lines if line.rank == 1), None)

    @property
    def records(self) -> list[Line]:
        """Return the records, newest first."""
        return sorted((line for line in self.lines if line.record), key=lambda line: line.result.finished_at, reverse=True)


def standing(results: QuerySet[Result], query: QueryDict) -> Standing:
    """Return the task's results in order.

    `results` are the results of one task that the viewer may see. `query` may select a setup by its id.
    """
    setups = _setups(results)
    chosen = next((setup for setup, _ in setups if str(setup.pk) == query.get("setup", "")), setups[0][0] if setups else None)
    rows = list(with_evidence(results.filter(setup=chosen)).order_by("-finished_at")[:MOST_POINTS]) if chosen else []
    return Standing(chosen, setups, ranked(rows), baselines(rows), len(rows))


def _setups(results: QuerySet[Result]) -> list[tuple[Setup, int]]:
    """Return the setups, sorted by clock version (the current one first), then GPUs before CPUs, then by number of results."""
    counts = dict(results.order_by().values_list("setup").annotate(n=Count("pk")).values_list("setup", "n"))
    setups = Setup.objects.in_bulk(counts)
    order = sorted(setups.values(), key=lambda setup: (setup.clock != CLOCK, setup.device_kind != "cuda", -counts[setup.pk], setup.pk))
    return [(setup, counts[setup.pk]) for setup in order]


def ranked(rows: list[Result]) -> list[Line]:
    """Rank results by the lower bound over the best baseline. Results that don't count come last and have no rank."""
    records, reached = set(), 0.0
    for row in sorted((row for row in rows if counts(row)), key=lambda row: (row.finished_at, row.pk)):
        if (row.best or 0.0) > reached:
            reached = row.best or 0.0
            records.add(row.pk)
    lines, rank = [], 0
    for row in sorted(rows, key=lambda row: (not counts(row), -(row.best_low or 0.0), row.pk)):
        rank += counts(row)
        lines.append(Line(row, named(row.entry).short, of_result(row), rank if counts(row) else None, row.pk in records))
    return lines


def counts(row: Result) -> bool:
    return row.confirmed and row.best is not None and not row.flagged and not left_out(row)


def baselines(rows: list[Result]) -> list[Baseline]:
    """Return the baselines, fastest first."""
    times: dict[str, list[float]] = {}
    for row in rows:
        for name, found in (row.provenance.comparisons if row.confirmed else {}).items():
            times.setdefault(name, []).append(found["baseline_ms"])
    order = sorted((median(found), name) for name, found in times.items())
    return [Baseline(NAMES.get(name, name), ms, len(times[name]), best=not at) for at, (ms, name) in enumerate(order)]


def pictures(found: Standing) -> dict[str, Any]:
    """Return the points of both charts: the record over time, and the speedup against a run's cost."""
    points = [
        {
            "at": line.result.finished_at.isoformat(), "name": line.name, "ratio": line.result.best, "low": line.result.best_low,
            "high": line.result.best_high, "against": line.headline.against, "record": line.record, "rank": line.rank,
            "costs": {column.key: getattr(line.result, column.source) for column in PLOTTED},
            "href": reverse("leaderboard:shown", args=[line.result.run_id]),
        }
        for line in found.lines if line.rank is not None
    ]  # fmt: skip
    return {"points": sorted(points, key=lambda point: str(point["at"])), "costs": plotted()}


def tried_by(found: Standing) -> int:
    """Return how many entries have a result here."""
    return len(Counter(line.result.entry_id for line in found.lines))
