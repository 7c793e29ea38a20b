"""The leaderboard for a selection, and the page of one entry with its result on each task."""

from __future__ import annotations

from typing import Any, NamedTuple

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET

from webapp.leaderboard import pictures
from webapp.leaderboard.arrays import Counted
from webapp.leaderboard.columns import shown
from webapp.leaderboard.entries import named
from webapp.leaderboard.filters import AGAINST, CLASSES, MANY, WHOSE, Filters
from webapp.leaderboard.listing import Place, visible
from webapp.leaderboard.models import Entry, Result
from webapp.leaderboard.ranking import Board, Task, board
from webapp.leaderboard.shown.opening import open_where_published, signed_in
from webapp.ui.tags import whisker_scale


@open_where_published
@require_GET
def table(request: HttpRequest) -> HttpResponse:
    place = Place.read(request.GET)
    if place.run or place.task:  # URLs of individual results from before each had its own page
        return redirect(f"{reverse('leaderboard:results')}?{request.GET.urlencode()}")
    found = board(request, Filters.of_page(request.GET))
    context = page_context(request, found) | {
        "columns": shown(found.filters.p, found.filters.against, found.filters.sort),
        "scale": whisker_scale([row.against(found.filters.against) for row in found.rows]),
        "curves": pictures.curves(found) if found.rows else None,
        "left_out_href": pictures.results_address(**(found.filters.plain() | {"state": "left_out"})),
    }
    return render(request, "leaderboard/table.html", context)


def page_context(request: HttpRequest, found: Board) -> dict[str, Any]:
    """Return the context for the filters above every leaderboard page."""
    filters, setup = found.filters, found.setup
    return {
        "board": found,
        "filters": filters,
        "setup": setup,
        "options": found.options,
        "classes": CLASSES.items(),
        "against": AGAINST.items(),
        "whose": WHOSE.items(),
        "against_name": AGAINST[filters.against or "eager"],
        "signed_in": signed_in(request),
        "any": bool(found.options.devices),
        "many": MANY,
        "earlier": dict(found.options.clocks).get(filters.clock) if filters.clock else sum(rows for _, rows in found.options.clocks),
        "more_open": bool({filters.planner, filters.coder, filters.language, filters.whose, filters.clock, filters.mode} - {"", "train"}),
    }


@open_where_published
@require_GET
def cells_json(request: HttpRequest) -> JsonResponse:
    """Return the heat map of the same selection."""
    answer = JsonResponse(pictures.cells(board(request, Filters.read(request.GET))))
    answer["Cache-Control"] = "no-store"
    return answer


class Line(NamedTuple):
    """A task on an entry's page."""

    task: Task
    row: Counted | None
    left_out: int | None  # the result that a verdict excluded
    solved: bool
    result: Result | None = None


@open_where_published
@require_GET
def entry_page(request: HttpRequest, entry_id: int) -> HttpResponse:
    filters = Filters.of_page(request.GET)
    found = board(request, filters)
    entry = Entry.objects.select_related("team").filter(pk=entry_id).first()
    # Workflow entries are public and can be viewed before they have a result. An entry for a team's members is visible only through its results.
    open_to_all = entry is not None and entry.team_id is None and found.setup is None and signed_in(request)
    if entry is None or not (open_to_all or entry_id in found.grid.entries or _seen(request, entry_id)):
        raise Http404("no such entry")
    lines = _lines(found, entry_id) if entry_id in found.grid.entries else []
    scale = whisker_scale([{"ratio": x.row.best, "low": x.row.best_low, "high": x.row.best_high} for x in lines if x.row and x.row.confirmed])
    context = page_context(request, found) | {
        "entry": entry,
        "name": named(entry),
        "row": next((row for row in found.entries if row.key == str(entry_id)), None),
        "lines": lines,
        "missing": sum(line.row is None and line.left_out is None for line in lines),
        "scale": scale,
        "back": f"{reverse('leaderboard:table')}?{filters.query}".rstrip("?"),
    }
    return render(request, "leaderboard/entry.html", context)


def _seen(request: HttpRequest, entry_id: int) -> bool:
    """Return whether the viewer can see the entry under another selection, in which case the page is empty rather than forbidden."""
    return visible(request).filter(entry=entry_id).exists()


def _lines(found: Board, entry_id: int) -> list[Line]:
    """Return the solved tasks by lower bound, followed by tasks without a result and then untried tasks."""
    position = found.grid.entries.index(entry_id)
    lines = []
    for column, task in enumerate(found.tasks):
        row = found.grid.row(position, column)
        judged = found.grid.left_out.get((position, column))
        lines.append(Line(task, row, None if row else judged, bool(row and row.confirmed and found.filters.solves(row.program_class))))
    wanted = [line.row.result for line in lines if line.row] + [line.left_out for line in lines if line.left_out]
    results = Result.objects.select_related("run", "provenance").in_bulk(wanted)
    full = [line._replace(result=results.get(line.row.result if line.row else line.left_out or 0)) for line in lines]
    low = "best_low" if found.filters.against == "best" else "eager_low"
    return sorted(full, key=lambda line: (not line.solved, line.row is None, line.left_out is None, -((line.row and getattr(line.row, low)) or 0.0)))
