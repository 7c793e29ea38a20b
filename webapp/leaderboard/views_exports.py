"""Serves the leaderboard as files. They contain the same selection as the page, with intervals, units, hashes and versions."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.views.decorators.http import require_GET

from webapp.leaderboard import exports, listing, result_rows
from webapp.leaderboard.filters import Filters
from webapp.leaderboard.models import Result
from webapp.leaderboard.ranking import board
from webapp.streaming import download


@login_required
@require_GET
def entries_json(request: HttpRequest) -> HttpResponse:
    return _file(exports.board_file(board(request, Filters.read(request.GET))).model_dump_json(indent=1), "application/json", "leaderboard.json")


@login_required
@require_GET
def entries_csv(request: HttpRequest) -> HttpResponse:
    return _file(exports.entries_csv(board(request, Filters.read(request.GET))), "text/csv; charset=utf-8", "leaderboard.csv")


@login_required
@require_GET
def results_json(request: HttpRequest) -> StreamingHttpResponse:
    return download(request, result_rows.as_json(_results(request)), "application/json", "results.json")


@login_required
@require_GET
def results_csv(request: HttpRequest) -> StreamingHttpResponse:
    return download(request, result_rows.as_csv(_results(request)), "text/csv; charset=utf-8", "results.csv")


@login_required
@require_GET
def schema_json(request: HttpRequest) -> JsonResponse:
    return JsonResponse(exports.schema(), json_dumps_params={"indent": 1})


def _results(request: HttpRequest) -> QuerySet[Result]:
    return listing.found(request, Filters.read(request.GET), listing.Place.read(request.GET))


def _file(text: str, kind: str, name: str) -> HttpResponse:
    answer = HttpResponse(text, content_type=kind)
    answer["Content-Disposition"] = f'attachment; filename="{name}"'
    return answer
