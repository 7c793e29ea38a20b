"""Shows the branches (ways) of a run that explores several at once, one per column, with each branch's programs, its verdicts and the rules that
changed its state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agents.payloads import CandidateProposed, WayChanged
from agents.ways import WayRow, belongs, change, told
from webapp.runs.models import Candidate, Run

WAITS = {"tone": "idle", "sign": "…", "word": "not verified yet"}


@dataclass(frozen=True)
class Step:
    """A program with its verdict, or an event in the history of the branch (`said`)."""

    said: str = ""
    candidate: Candidate | None = None
    verdict: dict[str, str] | None = None


@dataclass(frozen=True)
class Way:
    row: WayRow
    steps: tuple[Step, ...]


def ways_of(run: Run) -> dict[str, Any]:
    """Return the context of `runs/_ways.html`: `ways`, the branches, which is empty for a run with a single branch, and `going`, the number of active
    branches."""
    rows: list[WayRow] = []
    if run.events.filter(kind=WayChanged.kind).exists():
        for event in run.events.filter(kind__in=[WayChanged.kind, CandidateProposed.kind]).order_by("seq"):
            match event.body:
                case WayChanged() as p:
                    change(rows, p)
                case CandidateProposed() as p:
                    belongs(rows, p)
    known = {one.number: one for one in run.candidates.select_related("verification")} if rows else {}
    ways = [Way(row, tuple(_step(step, known) for step in row.steps)) for row in rows]
    return {"ways": ways, "going": sum(not row.ended for row in rows) if run.state != "finished" else 0}


def _step(step: int | WayChanged, known: dict[int, Candidate]) -> Step:
    if isinstance(step, WayChanged):
        said = told(step)
        return Step(said=f"{said[:1].upper()}{said[1:]}")
    candidate = known.get(step)
    return Step(candidate=candidate, verdict=_verdict(candidate)) if candidate is not None else Step(said=f"Candidate {step}")


def _verdict(candidate: Candidate) -> dict[str, str]:
    found = candidate.verification
    if found is None or found.state != "finished":
        return WAITS
    if found.status == "passed" and found.speedup is not None:
        faster = found.speedup_low is not None and found.speedup_low > 1
        return {"tone": "ok" if faster else "idle", "sign": "▲" if faster else "=", "word": f"{found.speedup:.2f}× eager"}
    return {"tone": "bad", "sign": "✕", "word": found.status.replace("_", " ") or "no verdict"}
