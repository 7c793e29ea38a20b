"""The strategy catalogue, with each entry's expected gain and the gain realised in the runs of a person's teams."""

from __future__ import annotations

from dataclasses import dataclass

from django.contrib.auth.decorators import login_required
from django.db.models import QuerySet
from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from agents.strategies import CATALOGUE, FAMILIES, Strategy, by_name
from agents.strategies.ledger import Score, score
from agents.strategies.strategy import BOTTLENECKS
from webapp.accounts.signed_in import Request
from webapp.knowledge.models import Learned

LANGUAGES = {"cuda": "CUDA C++", "triton": "Triton", "cpp": "C++"}
DEVICES = {"cuda": "GPU", "cpu": "CPU"}
SHOWN = 100  # maximum number of uses listed on a strategy's page


@dataclass(frozen=True)
class StrategyRecord:
    strategy: Strategy
    record: Score


@login_required
@require_GET
def strategies(request: Request) -> HttpResponse:
    device, bottleneck, text = request.GET.get("device", ""), request.GET.get("answers", ""), request.GET.get("q", "").strip()
    chosen = [s for s in CATALOGUE if _fits(s, device, bottleneck, text)]
    records = _records(request, device)
    families = [
        {"name": name, "about": about, "rows": [StrategyRecord(s, records.get(s.name, score([]))) for s in chosen if s.family == name]}
        for name, about in FAMILIES.items()
    ]
    context = {
        "families": [family for family in families if family["rows"]], "count": len(chosen), "total": len(CATALOGUE), "text": text,
        "device": device, "devices": DEVICES, "bottleneck": bottleneck, "bottlenecks": [b for b in BOTTLENECKS if b != "none"],
        "uses": sum(record.tried for record in records.values()),
    }  # fmt: skip
    return render(request, "knowledge/strategies.html", context)


@login_required
@require_GET
def strategy(request: Request, name: str) -> HttpResponse:
    found = by_name(name)
    if found is None:
        raise Http404("no such strategy")
    uses = _visible(request).filter(strategy=name).select_related("run").order_by("-at")
    by_device: dict[tuple[str, str], list[Learned]] = {}
    by_operator: dict[str, list[Learned]] = {}
    for use in uses:
        by_device.setdefault((use.device, use.device_model), []).append(use)
        for operator in dict.fromkeys(use.operators):
            by_operator.setdefault(operator, []).append(use)
    operators = sorted(by_operator.items(), key=lambda pair: -len(pair[1]))
    context = {
        "strategy": found,
        "languages": [(key, label, getattr(found, key)) for key, label in LANGUAGES.items() if getattr(found, key)],
        "record": score(uses),
        "devices": [{"device": device, "model": model, "record": score(rows)} for (device, model), rows in sorted(by_device.items())],
        "operators": [{"name": operator, "record": score(rows)} for operator, rows in operators[:12]],
        "uses": uses[:SHOWN],
    }
    return render(request, "knowledge/strategy.html", context)


def _visible(request: Request) -> QuerySet[Learned]:
    return Learned.objects.filter(team=request.team)


def _records(request: Request, device: str) -> dict[str, Score]:
    rows = _visible(request)
    rows = rows.filter(device=device) if device in DEVICES else rows
    grouped: dict[str, list[Learned]] = {}
    for row in rows.only("strategy", "outcome", "realised", "expected"):
        grouped.setdefault(row.strategy, []).append(row)
    return {name: score(found) for name, found in grouped.items()}


def _fits(s: Strategy, device: str, bottleneck: str, text: str) -> bool:
    if (device in DEVICES and device not in s.devices) or (bottleneck in BOTTLENECKS and bottleneck not in s.answers):
        return False
    said = f"{s.name} {s.title} {s.applies} {s.cuda} {s.triton} {s.cpp} {' '.join(s.cures)}".casefold()
    return all(word in said for word in text.casefold().split())
