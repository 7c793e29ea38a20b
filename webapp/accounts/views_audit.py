"""A team's audit log, which its owners can read: who did what, when and from where."""

from __future__ import annotations

import csv
import uuid
from collections.abc import Iterator
from datetime import date, datetime, time
from io import StringIO
from typing import Any

from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.db.models import Q, QuerySet
from django.http import HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.dateparse import parse_date
from django.views.decorators.http import require_GET

from webapp.accounts.audit import ACTIONS
from webapp.accounts.models import AuditEntry, Team
from webapp.accounts.signed_in import Request
from webapp.accounts.views_team import team_for_page
from webapp.leaderboard.exports import harmless
from webapp.streaming import download

A_PAGE = 100
COLUMNS = ("at", "person", "action", "target", "detail", "address", "via")


@login_required
@require_GET
def audit(request: Request, team_id: uuid.UUID) -> HttpResponse:
    team, context = team_for_page(request, team_id, "own")
    entries = filtered(team, request)
    page = Paginator(entries, A_PAGE).get_page(request.GET.get("page"))
    lines = [
        {"entry": entry, "words": ACTIONS.get(entry.action, entry.action.replace(".", " ").replace("_", " ")), "said": described(entry.detail)}
        for entry in page
    ]
    kinds = AuditEntry.objects.filter(team=team).order_by("action").values_list("action", flat=True).distinct()
    people = AuditEntry.objects.filter(team=team).exclude(actor_name="").order_by("actor_name").values_list("actor_name", flat=True).distinct()
    context |= {
        "page": page,
        "lines": lines,
        "kinds": [(kind, ACTIONS.get(kind, kind)) for kind in kinds],
        "people": people,
        "filtered": any(request.GET.get(name) for name in ("q", "action", "who", "since", "until")),
    }
    return render(request, "accounts/audit.html", context)


@login_required
@require_GET
def audit_csv(request: Request, team_id: uuid.UUID) -> StreamingHttpResponse:
    """Streams all entries that match the filter, with times in UTC."""
    team, _ = team_for_page(request, team_id, "own")
    return download(request, _lines(filtered(team, request)), "text/csv; charset=utf-8", f"audit-{team.slug}.csv")


def filtered(team: Team, request: Request) -> QuerySet[AuditEntry]:
    """Filters by `?q=` words, `?action=`, `?who=`, `?since=` and `?until=` (dates, inclusive)."""
    entries = AuditEntry.objects.filter(team=team).order_by("-at", "-pk")
    given = {name: request.GET.get(name, "").replace("\0", "").strip()[:150] for name in ("q", "action", "who", "since", "until")}
    for word in given["q"].split()[:8]:
        entries = entries.filter(Q(target__icontains=word) | Q(actor_name__icontains=word) | Q(action__icontains=word) | Q(detail__icontains=word))
    if given["action"]:
        entries = entries.filter(action=given["action"])
    if given["who"]:
        entries = entries.filter(actor_name=given["who"])
    for name, lookup, edge in (("since", "at__gte", time.min), ("until", "at__lte", time.max)):
        day = _day(given[name])
        if day is not None:
            entries = entries.filter(**{lookup: timezone.make_aware(datetime.combine(day, edge))})
    return entries


def _day(text: str) -> date | None:
    try:
        return parse_date(text)
    except ValueError:
        return None


def described(detail: dict[str, Any]) -> str:
    """Formats {"before": "member", "after": "owner"} as "member → owner", and anything else as "name value"."""
    rest = dict(detail)
    said = []
    if "after" in rest:
        said.append(f"{rest.pop('before', '')} → {rest.pop('after')}")
    said += [f"{name} {', '.join(map(str, value)) if isinstance(value, list) else value}" for name, value in rest.items()]
    return ", ".join(said)


def _lines(entries: QuerySet[AuditEntry]) -> Iterator[bytes]:
    text = StringIO()
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    for number, entry in enumerate(entries.iterator(chunk_size=500), start=1):
        row = (entry.at.isoformat(), entry.actor_name, entry.action, entry.target, described(entry.detail), entry.address or "", entry.via)
        writer.writerow([harmless(value) for value in row])
        if number % 500 == 0:
            yield text.getvalue().encode()
            text.seek(0)
            text.truncate()
    yield text.getvalue().encode()
