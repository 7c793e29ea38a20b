"""Paginates individual results by cursor. The last page costs no more than the first, and new results do not shift the pages that a person is
reading."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.db.models import Q, QuerySet
from django.http import QueryDict

from webapp.leaderboard.models import Result

PAGE_SIZE = 50
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True)
class Page:
    """One page of ordered results, the total number of results, and the cursors of the adjacent pages. A cursor is empty if there is no such page."""

    results: list[Result]
    total: int
    newer: str = ""
    older: str = ""

    def __iter__(self) -> Iterator[Result]:
        return iter(self.results)


def newest(everything: QuerySet[Result], given: QueryDict, run: str = "") -> Page:
    """Return a page of results, newest first.

    `after=CURSOR`, `before=CURSOR` or `end=1` (the oldest) selects the page. Without them, the page starts at `run` or at the newest result.
    """
    results, total = everything, everything.order_by().count()
    after, before = read_cursor(given.get("after", "")), read_cursor(given.get("before", ""))
    backwards = before is not None or "end" in given
    inclusive = False
    if after is None and not backwards and run:
        after = results.filter(run_id=run).values_list("finished_at", "pk").first()
        inclusive = after is not None
    edge = before if backwards else after
    if edge is not None:
        at, pk = edge
        way = "gt" if backwards else "lt"
        # The first condition determines where the index scan starts.
        this = f"pk__{way}e" if inclusive else f"pk__{way}"
        results = results.filter(Q(**{f"finished_at__{way}e": at}), Q(**{f"finished_at__{way}": at}) | Q(**{this: pk}))
    order = ("finished_at", "pk") if backwards else ("-finished_at", "-pk")
    found = list(results.order_by(*order)[: PAGE_SIZE + 1])
    more, found = len(found) > PAGE_SIZE, found[:PAGE_SIZE]
    if backwards:
        found.reverse()
    if not found:
        return newest(everything, QueryDict()) if total and edge is not None else Page([], total)
    has_newer = more if backwards else edge is not None
    if inclusive and edge is not None:
        at, pk = edge
        has_newer = everything.filter(Q(finished_at__gt=at) | Q(finished_at=at, pk__gt=pk)).exists()
    has_older = (before is not None) if backwards else more
    return Page(found, total, write_cursor(found[0]) if has_newer else "", write_cursor(found[-1]) if has_older else "")


def ranked(results: QuerySet[Result], given: QueryDict, run: str = "") -> Page:
    """Return a page of one task's results, best first. The cursor is the number of results before the page."""
    total = results.order_by().count()
    at = _number(given.get("after", "")) or 0
    if "end" in given:
        at = (total - 1) // PAGE_SIZE * PAGE_SIZE
    elif before := _number(given.get("before", "")):
        at = before - PAGE_SIZE
    elif run and "after" not in given:
        runs = [str(found) for found in results.values_list("run", flat=True)]
        at = runs.index(run) // PAGE_SIZE * PAGE_SIZE if run in runs else 0
    at = max(0, at)
    found = list(results[at : at + PAGE_SIZE])
    return Page(found, total, str(at) if at else "", str(at + PAGE_SIZE) if at + PAGE_SIZE < total else "")


def write_cursor(result: Result) -> str:
    return f"{(result.finished_at - EPOCH) // MICROSECOND}-{result.pk}"


def read_cursor(text: str) -> tuple[datetime, int] | None:
    """Parse a cursor written by `write_cursor`; return None for anything else."""
    moment, pk = (_number(part) for part in text.partition("-")[::2])
    if moment is None or pk is None:
        return None
    try:
        return EPOCH + moment * MICROSECOND, pk
    except OverflowError:
        return None


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None
