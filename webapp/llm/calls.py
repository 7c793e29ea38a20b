"""Stores a run's exchanges with models as rows, which are derived from its events. Pages compute spending on models from these rows."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from agents.events import Event
from agents.payloads import Ended, LlmCompleted, LlmFailed, RunForked
from webapp.llm.models import ModelCall
from webapp.runs.models import Run
from webapp.runs.trace.parts import Part


def forget(run: Run) -> None:
    """Deletes the rows that are derived from events. Replays have no event, so their rows are kept."""
    ModelCall.objects.filter(run=run, seq__gt=0).delete()


PART = Part(forget=forget)


@PART.rows.on(RunForked)
def forked(run: Run, event: Event, p: RunForked) -> None:
    """Deletes the model calls in the events that a fork has copied, because the parent already records their cost."""
    forget(run)


@PART.rows.on(LlmCompleted)
def completed(run: Run, event: Event, p: LlmCompleted) -> None:
    counted = {"input_tokens": p.usage.input_tokens, "output_tokens": p.usage.output_tokens} if p.usage else {}
    dollars = p.spent.get("dollars") if p.dollars is None else p.dollars
    _keep(run, event, p, event.agent, dollars=dollars, seconds=p.seconds, model=p.model[:200], **counted)


@PART.rows.on(LlmFailed)
def failed(run: Run, event: Event, p: LlmFailed) -> None:
    _keep(run, event, p, p.role or event.agent, dollars=p.spent.get("dollars"), failed=True)


def _keep(run: Run, event: Event, p: Ended, agent: str, **more: Any) -> None:
    known = {
        "team_id": run.team_id,
        "at": datetime.fromisoformat(event.at),
        "profile": p.profile[:64],
        "agent": agent[:20],
        "purpose": p.purpose[:80],
        "calls": p.spent.get("calls", p.attempts),
        "tokens": round(p.spent.get("tokens", 0)),
        **more,
    }
    ModelCall.objects.update_or_create(run=run, seq=event.seq, defaults=known)
