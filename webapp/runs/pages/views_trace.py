"""The endpoints of the trace explorer: stretches of the trace, full texts, exchanges with models, and search hits."""

from __future__ import annotations

import gzip
import json
import uuid
from typing import Any

from django.contrib.auth.decorators import login_required
from django.db import connection
from django.http import HttpRequest, HttpResponse, HttpResponseNotModified, JsonResponse
from django.views.decorators.http import require_GET

from webapp.runs.access import run_for
from webapp.runs.trace import texts
from webapp.runs.trace.condense import condense
from webapp.runs.trace.reading import EVENT_JSON
from webapp.runs.trace.search import BadQuery, Query, search
from webapp.runs.trace.texts import NoSuchText, portion

STRETCH = 2500  # events per response; pages request whole stretches so that the browser can cache them
FORM = "1"  # version of condense()'s output; a new version makes browsers drop cached stretches
SELECT_STRETCH = f"SELECT seq, kind, {EVENT_JSON} FROM runs_event WHERE run_id = %s AND seq > %s AND seq <= %s ORDER BY seq"
SMALL = 2000  # smallest response that is worth compressing, in bytes


@login_required
@require_GET
def stretch(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """Return `{"since", "last", "head", "events"}`: the condensed events after `since`, up to the next multiple of `STRETCH`."""
    run, _ = run_for(request, run_id)
    since = _whole_number(request, "since")
    if since is None:
        return JsonResponse({"error": "`since` is a whole number"}, status=400)
    end = (since // STRETCH + 1) * STRETCH
    last = min(end, max(run.last_seq, since))
    tag = f'"{run.pk}-{since}-{last}-{FORM}"' if last == end else None
    if tag and request.headers.get("If-None-Match") == tag:
        return _kept(HttpResponseNotModified(), tag)
    with connection.cursor() as cursor:
        cursor.execute(SELECT_STRETCH, [run.pk, since, last])
        events = condense(cursor.fetchall())
    body = f'{{"since":{since},"last":{last},"head":{max(run.last_seq, last)},"events":[{",".join(events)}]}}'.encode()
    response = HttpResponse(content_type="application/json")
    response["Vary"] = "Accept-Encoding, Cookie"
    if len(body) > SMALL and "gzip" in request.headers.get("Accept-Encoding", ""):
        body = gzip.compress(body, compresslevel=1, mtime=0)
        response["Content-Encoding"] = "gzip"
    response.content = body
    return _kept(response, tag)


def _kept(response: HttpResponse, tag: str | None) -> HttpResponse:
    """Set cache headers. A full stretch never changes, so the browser caches it and only revalidates whether this person may still see it."""
    response["Cache-Control"] = "private, no-cache" if tag else "no-store"
    if tag:
        response["ETag"] = tag
    return response


@login_required
@require_GET
def message(request: HttpRequest, run_id: uuid.UUID, seq: int) -> JsonResponse:
    """Return the full text of a message in portions: `{"text", "from", "characters", "lines", "next"}`."""
    run, _ = run_for(request, run_id)
    start = _whole_number(request, "from")
    if start is None:
        return JsonResponse({"error": "`from` is a whole number"}, status=400)
    try:
        text = texts.message_text(run, seq)
    except NoSuchText as error:
        return JsonResponse({"error": str(error)}, status=404)
    return _fresh(portion(text, start).as_json())


@login_required
@require_GET
def call(request: HttpRequest, run_id: uuid.UUID, seq: int) -> JsonResponse:
    """Return one exchange with a model.

    The response is `{"settings", "texts": [{"name", ...portion}]}` or, with `text=N&from=M`, a portion of the N-th text.
    """
    run, _ = run_for(request, run_id)
    index, start = _whole_number(request, "text", -1), _whole_number(request, "from")
    if index is None or start is None:
        return JsonResponse({"error": "`text` and `from` are whole numbers"}, status=400)
    try:
        found = texts.call_texts(run, seq)
    except NoSuchText as error:
        return JsonResponse({"error": str(error)}, status=404)
    if index >= 0:
        if index >= len(found["texts"]):
            return JsonResponse({"error": f"the exchange has {len(found['texts'])} texts"}, status=404)
        return _fresh(portion(found["texts"][index]["text"], start).as_json())
    shown = [{"name": one["name"]} | portion(one["text"], 0, 4000).as_json() for one in found["texts"]]
    return _fresh({"settings": found["settings"], "texts": shown})


@login_required
@require_GET
def find(request: HttpRequest, run_id: uuid.UUID) -> JsonResponse:
    """Return matching entries: `{"total", "occurrences", "places", "shown", "kinds", "head", "unread"}`."""
    run, _ = run_for(request, run_id)
    given = {name: request.GET.get(name, "") for name in ("kind", "agent", "status")}
    try:
        query = Query.of(request.GET.get("q", ""), **given, stored="stored" in request.GET)
    except BadQuery as error:
        return JsonResponse({"error": str(error)}, status=400)
    found = search(run, query)
    return _fresh(
        {
            "total": len(found.places), "occurrences": found.occurrences, "places": found.places, "shown": found.shown, "kinds": found.kinds,
            "head": found.head, "unread": found.unread_artefacts,
        }
    )  # fmt: skip


def _whole_number(request: HttpRequest, name: str, default: int = 0) -> int | None:
    given = request.GET.get(name, "")
    if not given:
        return default
    return int(given) if given.isdecimal() and len(given) < 16 else None


def _fresh(content: dict[str, Any]) -> JsonResponse:
    response = JsonResponse(content, json_dumps_params={"ensure_ascii": False, "separators": (",", ":")}, encoder=json.JSONEncoder)
    response["Cache-Control"] = "no-store"
    return response
