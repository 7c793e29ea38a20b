"""Exchanges with models as rows, from a run's events; what pages say of spending is read from them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from agents.events import Event
from webapp.llm.models import ModelCall
from webapp.runs.models import Run


def forget(run: Run) -> None:
    """What events tell; replays are not in them."""
    ModelCall.objects.filter(run=run, seq__gt=0).delete()


def completed(run: Run, event: Event, p: dict[str, Any]) -> None:
    usage = p.get("usage") or {}
    _keep(run, event, p, input_tokens=usage.get("input_tokens"), output_tokens=usage.get("output_tokens"), model=(p.get("model") or "")[:200])


def failed(run: Run, event: Event, p: dict[str, Any]) -> None:
    _keep(run, event, p, failed=True)


def _keep(run: Run, event: Event, p: dict[str, Any], **more: Any) -> None:
    spent = p.get("spent") or {}
    dollars = p.get("dollars")
    known = {
        "team_id": run.team_id,
        "at": datetime.fromisoformat(event.at),
        "profile": str(p.get("profile") or "")[:64],
        "agent": (p.get("role") or event.agent or "")[:20],
        "purpose": str(p.get("purpose") or "")[:80],
        "calls": spent.get("calls", p.get("attempts", 1)),
        "tokens": round(spent.get("tokens", 0)),
        "dollars": spent.get("dollars") if dollars is None else dollars,
        "seconds": p.get("seconds"),
        **more,
    }
    ModelCall.objects.update_or_create(run=run, seq=event.seq, defaults=known)
