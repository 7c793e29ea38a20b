"""Makes one small row per task from the trace of its run, with the result confirmed in the full tier and the steps that led to it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from agents.events import Event
from agents.journal import read_trace
from agents.payloads import BudgetUpdated, VerificationFinished
from agents.projection import CandidateRow, Summary, project
from verifier.jobs import JobResult
from verifier.report import STAND_INS, Interval, Report

SOLVED = ("custom", "mixed")  # only classes with generated kernels count
NOT_ADMITTED = "the task was not admitted: "  # prefix of the engine's reason for ending such a run
DIGITS = 5
BESIDE = ("compile", "compile-max-autotune", "cuda-graph")  # baselines in addition to eager, in the full tier on a GPU


def row_of(folder: Path) -> dict[str, Any]:
    """Returns the row of a finished run. Times are in milliseconds and seconds. A ratio above 1 means that the program is faster."""
    events, stored = read_trace(folder)
    artefacts = dict(stored)
    summary = project(events)
    best = summary.best_candidate() or (summary.candidates[-1] if summary.candidates else None)
    report = report_of(best, artefacts)
    confirmed = report is not None and report.tier == "full" and report.status == "passed"
    row: dict[str, Any] = {
        "sha": summary.task.sha,
        "outcome": summary.outcome,
        "status": "passed" if confirmed else (best.status if best is not None and best.status != "passed" else "unconfirmed" if best else "failed"),
        "class": report.program_class if confirmed else None,
        "solved": bool(confirmed and report.program_class in SOLVED),
        "flags": sorted({*summary.flags, *(report.flags if report is not None else ()), *unsuited(summary)}),
        "vs_eager": interval(report.speedup) if confirmed else None,
        "candidates": len(summary.candidates),
        "first_faster_s": first_faster(events),
        "first_tier": first_tier(events),
        "seconds": round(summary.spent.get("seconds", 0.0), 1),
        "verifier_seconds": round(summary.spent.get("verifier_seconds", 0.0), 1),
        "moves": moves(summary, best),
        "warm": any(e.kind == "effect.completed" and e.payload["name"] == "experience" and any(e.payload["value"].values()) for e in events),
        "groups": groups(summary, best),
    }
    if confirmed:
        row |= measured(report)
    if not row["solved"]:
        row["why"] = why(summary, best, report if confirmed else None)
    return row


def unsuited(summary: Summary) -> list[str]:
    """Reports that PyTorch itself cannot run the model under a 16-bit policy because its forward mixes types, so no comparison is possible.
    Running out of memory does not count."""
    ended = summary.reason.startswith(NOT_ADMITTED) and " in forward: " in summary.reason and "OutOfMemory" not in summary.reason
    return [f"not under {summary.precision}"] if ended and summary.precision in ("bf16", "fp16") else []


def report_of(best: CandidateRow | None, artefacts: dict[str, bytes]) -> Report | None:
    if best is None or best.report is None:
        return None
    return JobResult.model_validate_json(artefacts[best.report.sha]).report


def measured(report: Report) -> dict[str, Any]:
    """Returns the fields that only a confirmed report has: the comparisons with every baseline."""
    timing = report.timing
    assert timing is not None
    others = {c.baseline: {**interval(c.speedup), "ms": rounded(c.baseline_ms)} for c in timing.comparisons}
    best = min(others, key=lambda name: others[name]["ratio"])
    return {
        "program": report.program,
        "program_ms": rounded(timing.program_ms),
        "baselines": others,
        "by_judge": interval(timing.by_judge),
        "missing": {
            name: report.reasons[name]
            for name in (*BESIDE, *STAND_INS.values())
            if name in report.reasons and STAND_INS.get(name, name) not in others
        },
        "best": {"baseline": best, **others[best]},
        "own_share": rounded(report.own_share),
        "floor_ms": rounded(report.floor_ms),
        "floor_fraction": rounded(report.floor_fraction),
        "weights": report.weights,
        "environment": report.environment.model_dump(exclude={"device"}),
        "protection": report.protection.sandbox,
        "preparing": timing.preparing,
        "waiting": timing.waiting,
        "measuring": timing.measuring,
        "measured_again": [finding.message for finding in report.findings if finding.rule == "measured-again"],
        "stages": {stage.name: round(stage.seconds, 1) for stage in report.stages},
    }


def first_faster(events: Iterable[Event]) -> float | None:
    """Returns the working time in seconds until a program with generated kernels was known to beat eager, or None if there was no such program."""
    found = False
    for event in events:
        match event.body:
            case VerificationFinished(job="verify") as done:
                found = found or (done.faster and done.program_class in SOLVED)
            case BudgetUpdated(spent=spent) if found:
                return round(spent["seconds"], 1)
    return None


def first_tier(events: Iterable[Event]) -> str | None:
    """Returns the tier of the first program's verdict. It is "full" if the run had a single program, in which case the seconds include those of all
    baselines."""
    return next((done.tier for e in events if (done := e.of(VerificationFinished)) is not None and done.job == "verify"), None)


def moves(summary: Summary, best: CandidateRow | None) -> list[str]:
    """Returns the changes that led to the best program, oldest first, each as a strategy and the place where it was applied."""
    line: list[str] = []
    while best is not None:
        line.append(" ".join(part for part in (best.strategy, best.step) if part))
        best = summary.candidate(best.parent)
    return [change for change in reversed(line) if change]


def groups(summary: Summary, best: CandidateRow | None) -> list[dict[str, Any]]:
    """Returns the plan's groups, each with its floor, its expected time, and the time of its kernels in the best program (None if unknown)."""
    realised: dict[str, float] = {}
    while best is not None and not realised:
        realised = best.diagnosis.groups if best.diagnosis else {}
        best = summary.candidate(best.parent)
    found = []
    for step in summary.plan.steps if summary.plan else []:
        group = {"id": step.id, "title": step.title, "space": step.space, "strategies": step.strategies}
        group |= {"floor_ms": rounded(step.floor_ms), "expected_ms": rounded(step.expected_ms), "realised_ms": rounded(realised.get(step.id))}
        if step.space != "own kernel":
            group["reason"] = step.reason
        found.append(group)
    return found


def why(summary: Summary, best: CandidateRow | None, confirmed: Report | None) -> str:
    """Returns why a row does not count as solved."""
    if confirmed is not None:
        return f"the best program is of class {confirmed.program_class}: no kernels of its own that matter"
    said = summary.reason or (best.message if best is not None else "") or "; ".join(summary.errors[-1:])
    return said[:600]


def interval(value: Interval | None) -> dict[str, float] | None:
    return {name: rounded(number) for name, number in value.model_dump().items()} if value is not None else None


def rounded(value: float | None) -> float | None:
    return float(f"{value:.{DIGITS}g}") if value is not None else None


def failed(reason: str, seconds: float) -> dict[str, Any]:
    """Returns the row of a task whose run did not finish."""
    return {
        "outcome": "failed", "status": "failed", "class": None, "solved": False, "flags": [], "vs_eager": None, "candidates": 0,
        "first_faster_s": None, "seconds": round(seconds, 1), "verifier_seconds": None, "moves": [], "groups": [], "why": reason[:600],
    }  # fmt: skip


def dumped(rows: dict[str, Any]) -> str:
    """Formats JSON with one line per row."""
    head = {name: value for name, value in rows.items() if name != "rows"}
    body = ",\n".join(f"  {json.dumps(key)}: {json.dumps(row)}" for key, row in rows["rows"].items())
    return json.dumps(head, indent=1)[:-2] + ',\n "rows": {\n' + body + "\n }\n}\n"
