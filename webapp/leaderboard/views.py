"""The leaderboard and its exports: verified results only, those of one's teams and those that other teams publish."""

from __future__ import annotations

import csv
from io import StringIO

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from webapp.leaderboard.results import Filters, eligible, exported, ranked
from webapp.ui.tags import whisker_scale

MAX_GROUPS = 200
COLUMNS = [
    "task", "suite", "rank", "device_name", "device_model", "precision", "mode",
    "speedup_vs_eager", "speedup_low", "speedup_high", "best_baseline", "best_baseline_speedup",
    "program_ms", "program_class", "own_share", "workflow", "agent", "flags", "team", "published", "measured_at",
    "title", "run", "candidate", "task_id",
]  # fmt: skip


@login_required
@require_GET
def table(request: HttpRequest) -> HttpResponse:
    filters = Filters.read(request.GET)
    groups = ranked(request.user, filters)
    shown = groups[:MAX_GROUPS]
    everything = eligible(request.user).order_by()
    context = {
        "groups": shown,
        "left_out": len(groups) - len(shown),
        "filters": filters,
        "filtered": filters != Filters(),
        "any": bool(groups) or everything.exists(),
        "scale": whisker_scale([row.speedup for group in shown for row in group.rows]),
        "devices": sorted(set(everything.values_list("device_model", "device_name")), key=lambda pair: pair[1]),
        "precisions": sorted(set(everything.values_list("run__precision", flat=True))),
        "workflows": sorted(set(everything.values_list("run__workflow", flat=True))),
        "classes": ["custom", "custom+mixed", "mixed", "orchestration"],
        "results": sum(len(group.rows) for group in groups),
        "task_name": shown[0].task if filters.task and shown else "",
        "highlighted": request.GET.get("run", ""),
    }
    return render(request, "leaderboard/table.html", context)


@login_required
@require_GET
def export_json(request: HttpRequest) -> JsonResponse:
    rows = exported(ranked(request.user, Filters.read(request.GET)))
    answer = JsonResponse({"version": 1, "units": {"program_ms": "ms", "speedup_vs_eager": "ratio, above 1 is faster"}, "results": rows})
    answer["Content-Disposition"] = 'attachment; filename="leaderboard.json"'
    return answer


@login_required
@require_GET
def export_csv(request: HttpRequest) -> HttpResponse:
    text = StringIO()
    writer = csv.DictWriter(text, COLUMNS, extrasaction="ignore")
    writer.writeheader()
    for row in exported(ranked(request.user, Filters.read(request.GET))):
        writer.writerow({name: harmless(value) for name, value in {**row, "flags": " ".join(row["flags"])}.items()})
    answer = HttpResponse(text.getvalue(), content_type="text/csv; charset=utf-8")
    answer["Content-Disposition"] = 'attachment; filename="leaderboard.csv"'
    return answer


def harmless(value):
    """Text that a spreadsheet would take for a formula, quoted: titles are written by strangers."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
