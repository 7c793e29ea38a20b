"""The page that shows the difference between two programs, and the rows that it requests."""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET

from webapp.accounts.access import has_right
from webapp.diffs.compute import compute
from webapp.diffs.effects import heads_of, measured_context
from webapp.diffs.measured import latest_of
from webapp.diffs.notes import line_notes
from webapp.diffs.sides import Side, side_of
from webapp.diffs.table import Table
from webapp.runs.access import run_for, visible_runs
from webapp.runs.models import Run
from webapp.runs.pages.evidence import evidence_of

LAYOUTS = {"inline": "Inline", "split": "Side by side"}
MAX_BETWEEN = 4000  # maximum rows of a fold per request
OTHER_RUNS = 20  # other runs of the same task that are offered as the other side


@dataclass(frozen=True)
class Options:
    layout: str = "inline"
    ignore_space: bool = False
    unfolded: bool = False  # for browsers without scripts

    @classmethod
    def read(cls, request: HttpRequest) -> Options:
        layout = request.GET.get("view", "inline")
        return cls(layout if layout in LAYOUTS else "inline", request.GET.get("space") == "ignore", request.GET.get("unfold") == "all")

    def query(self, **changes: str) -> str:
        """Returns the options as a URL query, with `changes` applied."""
        wanted = {"view": self.layout, "space": "ignore" if self.ignore_space else "", "unfold": "all" if self.unfolded else "", **changes}
        return urlencode({key: value for key, value in wanted.items() if value})


@login_required
@require_GET
def choose_sides(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """Redirects from the form with the two selects to the page whose URL contains both sides."""
    run, _ = run_for(request, run_id)
    sides = f"{request.GET.get('old', 'task')}...{request.GET.get('new', '')}"
    parse_sides(request, run, sides)
    return redirect(f"{reverse('diffs:diff', args=[run.pk, sides])}?{Options.read(request).query()}")


@login_required
@require_GET
def diff_page(request: HttpRequest, run_id: uuid.UUID, sides: str) -> HttpResponse:
    run, can_act = run_for(request, run_id)
    old, new = parse_sides(request, run, sides)
    context = diff_context(request, old, new, Options.read(request))
    verification = new.candidate.verification if new.candidate else None
    context |= {
        "run": run,
        "can_control": can_act,
        "choices": choices(request, run, old, new),
        "both": [old, new],
        "device_name": verification.device_name if verification else "",
    }
    return render(request, "diffs/diff.html", context)


@login_required
@require_GET
def diff_rows(request: HttpRequest, run_id: uuid.UUID, sides: str) -> HttpResponse:
    """Returns rows of the table: `part=N`, `begin=A&end=B` (the contents of a fold), or `find=R12` (the number of the part that holds a line)."""
    run, _ = run_for(request, run_id)
    old, new = parse_sides(request, run, sides)
    options = Options.read(request)
    tag = _tag(old, new, options, request.GET.urlencode())
    table = table_of(old, new, options)
    if "find" in request.GET:
        wanted = request.GET["find"]
        part = table.part_of("new" if wanted[:1] == "R" else "old", _number(wanted[1:]))
        return HttpResponse("" if part is None else str(part), content_type="text/plain")
    if "part" in request.GET:
        html = table.part(_number(request.GET["part"]))
    else:
        begin, end = _number(request.GET.get("begin", "")), _number(request.GET.get("end", ""))
        html = table.between(begin, min(end, begin + MAX_BETWEEN, len(table.diff.rows)))
    response = HttpResponse(html)
    response["ETag"] = tag
    response["Cache-Control"] = "private, no-cache"
    return response


def parse_sides(request: HttpRequest, run: Run, sides: str) -> tuple[Side, Side]:
    old, dots, new = sides.partition("...")
    if not dots:
        raise Http404("a diff has two sides: 3...4, or task...4")
    return side_of(request, run, old), side_of(request, run, new)


def table_of(old: Side, new: Side, options: Options, heads: dict[int, str] | None = None) -> Table:
    notes = {}
    if new.candidate and new.candidate.verification:
        notes = line_notes(evidence_of(new.candidate.verification).report, new.source)
    found = compute(old.source, new.source, options.ignore_space)
    if heads is None:
        measured = latest_of(old, new) if not options.ignore_space else None
        heads = heads_of(measured) if measured else {}
    number = new.candidate.number if new.candidate and not new.foreign else None
    return Table(found, old.source, new.source, options.layout, number, notes, heads, options.unfolded)


def diff_context(request: HttpRequest, old: Side, new: Side, options: Options) -> dict[str, Any]:
    """Returns the context of `runs/_diff.html`."""
    run = old.run if new.foreign and not old.foreign else new.run
    sides = f"{old.key}...{new.key}"
    measured = latest_of(old, new)
    table = table_of(old, new, options, heads_of(measured) if measured and not options.ignore_space else {})
    here = reverse("diffs:diff", args=[run.pk, sides])
    rows = reverse("diffs:rows", args=[run.pk, sides])
    return {
        "old": old,
        "new": new,
        "sides": sides,
        "diff": table.diff,
        "table": table,
        "opens_at": table.opens_at,
        "first_part": table.part(0) if table.items else "",
        "later_parts": list(enumerate(table.part_sizes()))[1:],
        "options": options,
        "layout": options.layout,
        "layouts": [(key, name, options.query(view=key)) for key, name in LAYOUTS.items()],
        "space_query": options.query(space="" if options.ignore_space else "ignore"),
        "unfold_query": options.query(unfold="all"),
        "rows_url": f"{rows}?{options.query()}",
        "self_url": here,
        "self_query": "",
        "permalink": f"{here}?{options.query()}",
        "measured": measured,
        **(measured_context(run, measured) if measured else {}),
        "measurable": _passed(old)
        and _passed(new)
        and old.sha != new.sha
        and (old.run.task_id, old.run.team_id) == (new.run.task_id, new.run.team_id),
    }


def choices(request: HttpRequest, run: Run, old: Side, new: Side) -> list[tuple[str, list[tuple[str, str]]]]:
    """Returns the possible values of a side, as groups of (key, name). They include other runs of the same team on the same task, each with its best
    candidate."""
    own = [("task", "the reference")]
    mine = run.candidates.order_by("number").values_list("number", "title")
    own += [(str(number), f"candidate {number}{f': {title[:50]}' if title else ''}") for number, title in mine]
    others = visible_runs(request).filter(team=run.team, task=run.task).exclude(pk=run.pk).exclude(best_candidate=None).order_by("-created_at")
    found = {}
    for other in others[:OTHER_RUNS] if has_right(request, run.team_id, "view") else []:  # guests see only this run
        found[f"{other.pk}:{other.best_candidate}"] = f"candidate {other.best_candidate} of {other.title} ({other.created_at:%Y-%m-%d})"
    for side in (old, new):
        if side.foreign:
            found.setdefault(side.key, side.label)
    return [("This run", own)] + ([("Other runs of this task", list(found.items()))] if found else [])


def _passed(side: Side) -> bool:
    verification = side.candidate.verification if side.candidate else None
    return bool(verification and verification.status == "passed")


def _tag(old: Side, new: Side, options: Options, query: str) -> str:
    return '"' + hashlib.sha256(f"{old.sha} {new.sha} {options} {query}".encode()).hexdigest()[:24] + '"'


def _number(text: str) -> int:
    if not text.isdecimal() or len(text) > 9:
        raise Http404("a number was expected")
    return int(text)
