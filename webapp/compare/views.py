"""The side-by-side comparison of two to six runs or candidates. With fewer than two, it shows the page for choosing them."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.contrib.auth.decorators import login_required
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_GET

from webapp.compare.figures import differing, figure_rows
from webapp.compare.pictures import attempts, intervals, roofline
from webapp.compare.sides import MOST, Side, sides_of
from webapp.compare.steps import steps_of, strategies_of
from webapp.runs.access import visible_runs
from webapp.runs.models import Run
from webapp.runs.pages.listing import with_best

OFFERED = 30


@login_required
@require_GET
def compare(request: HttpRequest) -> HttpResponse:
    sides = sides_of(request)
    context: dict[str, Any] = {"sides": sides, "most": MOST, "found": request.GET.get("q", "").strip()[:100]}
    if len(sides) < 2 or "choose" in request.GET:
        return render(
            request, "compare/choose.html", context | {"offered": offered(request, sides, context["found"]), "chosen": {s.key for s in sides}}
        )
    rows, same = differing(sides)
    steps = steps_of(sides)
    return render(
        request,
        "compare/compare.html",
        context
        | {
            "heads": [(side, address([other for other in sides if other is not side], "choose" if len(sides) == 2 else "")) for side in sides],
            "more": address(sides, "choose") if len(sides) < MOST else "",
            "figures": figure_rows(sides),
            "settings": rows,
            "same_settings": same,
            "steps": steps,
            "totals": [sum(step.total(at) for step in steps) for at in range(len(sides))],
            "strategies": strategies_of(sides),
            "tasks": {side.run.task_id for side in sides},
            "devices": {side.report.environment.device_name for side in sides if side.report},
            "pictures": {"intervals": intervals(sides), "roofline": roofline(sides), "attempts": attempts(sides)},
            "pairs": pairs(sides),
        },
    )


def address(sides: list[Side], extra: str = "") -> str:
    query = [("with", side.key) for side in sides] + ([(extra, "1")] if extra else [])
    return f"{reverse('compare:compare')}?{urlencode(query)}"


def offered(request: HttpRequest, sides: list[Side], text: str) -> list[Run]:
    """Returns runs that ended with a program: first those on the task of the chosen sides, then the most recent ones."""
    runs = with_best(visible_runs(request).filter(best_candidate__isnull=False, archived_at=None))
    runs = runs.select_related("task", "team").order_by("-created_at")
    if text:
        runs = runs.filter(Q(title__icontains=text) | Q(task__name__icontains=text) | Q(workflow__icontains=text))
    first = list(runs.filter(task__in={side.run.task_id for side in sides})[:OFFERED]) if sides else []
    known = {run.pk for run in first}
    rest = [run for run in runs[: OFFERED + len(known)] if run.pk not in known]
    return [*first, *rest][: max(OFFERED, len(first))]


def pairs(sides: list[Side]) -> list[dict[str, Any]]:
    """Returns the diff of each pair of programs and, if both belong to one run, their timelines on a common scale."""
    found = []
    for at, old in enumerate(sides):
        for new in sides[at + 1 :]:
            if not (old.candidate and new.candidate) or old.diff_key == new.diff_key:
                continue
            left = str(old.candidate.number) if old.run.pk == new.run.pk else old.diff_key
            pair = {
                "old": old, "new": new, "same": old.candidate.sha == new.candidate.sha,
                "diff": reverse("diffs:diff", args=[new.run.pk, f"{left}...{new.candidate.number}"]),
            }  # fmt: skip
            if old.run.pk == new.run.pk and old.candidate.timeline and new.candidate.timeline:
                pair["timelines"] = reverse("runs:timeline", args=[new.run.pk, new.candidate.timeline.sha]) + f"?against={old.candidate.timeline.sha}"
            found.append(pair)
    return found
