"""Selects the runs for a list: search, filters, order and cursor pagination, which makes the last page no more expensive than the first."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.db.models import Count, Exists, F, IntegerField, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce, JSONObject
from django.http import QueryDict

from webapp.accounts.models import Team
from webapp.runs.models import GAIN, TOOK, Candidate, Run, Tag, Verification
from webapp.runs.pages.census import FILTERS, STATES, Census

PAGE_SIZE = 50
# The columns of the best candidate's verification that are needed for a row's headline (webapp/runs/headline.py).
OF_THE_BEST = (
    *("status", "tier", "speedup", "speedup_low", "speedup_high"),
    *("best_baseline", "best_baseline_speedup", "best_baseline_low", "best_baseline_high", "baselines"),
)
# Name -> (expression, whether the largest values come first). The id breaks ties.
ORDERS: dict[str, tuple[Any, bool]] = {
    "-created": (F("created_at"), True),
    "created": (F("created_at"), False),
    "-speedup": (GAIN, True),
    "speedup": (GAIN, False),
    "-time": (TOOK, True),
    "time": (TOOK, False),
}


@dataclass(frozen=True)
class Listing:
    """The parsed request. Invalid values are ignored rather than refused, because a URL may be old."""

    state: str = ""
    text: str = ""
    order: str = "-created"
    chosen: dict[str, str] = field(default_factory=dict)  # keys as in FILTERS
    tag: str = ""
    after: str = ""
    before: str = ""

    @classmethod
    def of(cls, given: QueryDict) -> Listing:
        def clean(name: str) -> str:
            return given.get(name, "").replace("\0", "").strip()[:200]

        state, order = clean("state"), clean("sort")
        return cls(
            state if state in STATES else "",
            clean("q"),
            order if order in ORDERS else "-created",
            {name: clean(name) for name in FILTERS if clean(name)},
            clean("tag"),
            clean("after"),
            clean("before"),
        )

    @property
    def narrowed(self) -> bool:
        return bool(self.text or self.chosen or self.tag)

    @property
    def query(self) -> str:
        """Return the query string for a saved filter, without the position in the list."""
        named = {"q": self.text, "state": self.state, "tag": self.tag, **self.chosen, "sort": "" if self.order == "-created" else self.order}
        return urlencode({name: value for name, value in named.items() if value})


@dataclass(frozen=True)
class Page:
    """One page of runs in order, with the cursors of the adjacent pages. A cursor is empty if there is no such page."""

    runs: list[Run]
    total: int
    older: str
    newer: str

    def __iter__(self) -> Iterator[Run]:
        return iter(self.runs)

    def __bool__(self) -> bool:
        return bool(self.runs)


def with_best(runs: QuerySet[Run]) -> QuerySet[Run]:
    """Add the columns needed for a row's headline (`webapp.runs.headline.of_row`). The subqueries run only for the rows of one page."""
    verdicts = Verification.objects.filter(run=OuterRef("pk"), kind="verify").exclude(status="").order_by("-queued_at")
    best = _of_the_best().values(row=JSONObject(**{name: name for name in OF_THE_BEST}))
    return runs.annotate(best=Subquery(best[:1]), latest_status=Subquery(verdicts.values("status")[:1]))


def _of_the_best() -> QuerySet[Verification]:
    """Return the verifications of a run's best candidate. The decisive one comes first ("full" before "quick")."""
    best = Verification.objects.filter(run=OuterRef("pk"), kind="verify", status="passed", candidate_number=OuterRef("best_candidate"))
    return best.order_by("tier", "-queued_at")


def team_runs(team: Team) -> QuerySet[Run]:
    """Return the team's runs, newest first, with the columns of the best candidate's report that a row shows."""
    best = _of_the_best()
    latest = Verification.objects.filter(run=OuterRef("pk"), device_name__gt="").order_by("-queued_at")
    proposed = Candidate.objects.filter(run=OuterRef("pk")).order_by().values("run").annotate(n=Count("pk")).values("n")
    runs = Run.objects.filter(team=team).select_related("task", "team", "created_by").prefetch_related("tags")
    annotated = with_best(runs).annotate(
        program_class=Subquery(best.values("program_class")[:1]),
        own_share=Subquery(best.values("own_share")[:1]),
        device_name=Subquery(latest.values("device_name")[:1]),
        proposed=Coalesce(Subquery(proposed, output_field=IntegerField()), 0),
    )
    return annotated.order_by("-created_at")


def searched(runs: QuerySet[Run], text: str) -> QuerySet[Run]:
    """Filter runs by words. Each word must occur in the title, the task's name, the workflow, the device or the person's name."""
    for word in text.split()[:8]:
        runs = runs.filter(
            Q(title__icontains=word)
            | Q(task__name__icontains=word)
            | Q(workflow__icontains=word)
            | Q(device_kind__icontains=word)
            | Q(precision__icontains=word)
            | Q(created_by__username__icontains=word)
        )
    return runs


def page_of(team: Team, listing: Listing, census: Census) -> Page:
    def narrowed(runs: QuerySet[Run]) -> QuerySet[Run]:
        runs = searched(runs.filter(STATES[listing.state][1]), listing.text)
        if listing.tag:
            runs = runs.filter(Exists(Tag.objects.filter(run=OuterRef("pk"), name=listing.tag)))
        return runs.filter(**{FILTERS[name]: value for name, value in listing.chosen.items()})

    expression, largest_first = ORDERS[listing.order]
    keyed = narrowed(Run.objects.filter(team=team)).annotate(key=expression)
    if listing.order.endswith("time"):
        keyed = keyed.filter(key__isnull=False)  # a run that has not ended has no total time yet
    counted = not listing.text and not listing.tag and not listing.order.endswith("time")
    total = census.total(listing.state, listing.chosen) if counted else keyed.count()
    backwards = bool(listing.before)
    edge = read_cursor(listing.before or listing.after)
    down = largest_first != backwards
    if edge is not None:
        value, pk = edge
        beyond = "lt" if down else "gt"
        # The first condition determines where the index scan starts.
        keyed = keyed.filter(Q(**{f"key__{beyond}e": value}), Q(**{f"key__{beyond}": value}) | Q(**{f"pk__{beyond}": pk}))
    sign = "-" if down else ""
    found = list(keyed.order_by(f"{sign}key", f"{sign}pk").values_list("pk", "key")[: PAGE_SIZE + 1])
    more = len(found) > PAGE_SIZE
    found = found[:PAGE_SIZE]
    if backwards:
        found.reverse()
    rows = {run.pk: run for run in team_runs(team).filter(pk__in=[pk for pk, _ in found])}
    has_older = more if not backwards else bool(found)
    has_newer = more if backwards else bool(found) and edge is not None
    return Page(
        [rows[pk] for pk, _ in found if pk in rows],
        total,
        write_cursor(found[-1]) if has_older else "",
        write_cursor(found[0]) if has_newer else "",
    )


def write_cursor(row: tuple[Any, Any]) -> str:
    pk, key = row
    value = {"at": key.isoformat()} if isinstance(key, datetime) else {"s": key.total_seconds()} if hasattr(key, "total_seconds") else {"n": key}
    return base64.urlsafe_b64encode(json.dumps([value, str(pk)], separators=(",", ":")).encode()).decode().rstrip("=")


def _seconds(text: Any) -> timedelta:
    return timedelta(seconds=float(text))


READERS: dict[str, Callable[[Any], Any]] = {
    "at": datetime.fromisoformat,
    "s": _seconds,
    "n": float,
}  # by the kind of the column that a list is sorted by


def read_cursor(text: str) -> tuple[Any, str] | None:
    """Parse a cursor written by `write_cursor`. Return None for anything else, so that the list starts at the beginning."""
    try:
        value, pk = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        kind, inner = next(iter(value.items()))
        return READERS[kind](inner), str(UUID(pk))
    except (ValueError, TypeError, KeyError, AttributeError, StopIteration):
        return None
