"""Derives a finished run's row in the ranking.

The row is part of the run's projection, so it is written in the transaction that finishes the run and rebuilt with the projection.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Min

from agents.choices.workflows import without_models
from agents.events import Event
from agents.payloads import RunFinished, RunForked
from verifier.report import CLOCK
from webapp.leaderboard.models import Entry, Provenance, Result, Setup, Subject
from webapp.leaderboard.visibility import visibility_of
from webapp.runs import artefacts
from webapp.runs.models import Run, Verification
from webapp.runs.trace.parts import Part

# A task with one of these flags proves little, so its results are kept apart from the rankings.
UNRANKED = frozenset({"trivial", "stochastic"})
COLUMNS = {"eager": "eager", "compile": "compile", "compile-max-autotune": "autotune", "cuda-graph": "graph"}  # baseline -> column of Result
BASELINES = {*COLUMNS, "compile-reduce-overhead"}  # the last one replaces max-autotune; it counts towards `best` but has no row in the ranking
ENVIRONMENT = ("torch", "cuda", "driver", "compiler", "python", "threads")


def forget(run: Run) -> None:
    Result.objects.filter(run=run).delete()


PART = Part(forget=forget)


@PART.rows.on(RunForked)
def forked(run: Run, event: Event, p: RunForked) -> None:
    """Clear a fork's inherited result, which belongs to the parent run."""
    forget(run)


@PART.rows.on(RunFinished)
def finished(run: Run, event: Event, p: RunFinished) -> None:
    record(run)


def record(run: Run) -> Result | None:
    """Write the row of a finished run.

    Return None if the run provides no evidence about a task on a device (because it was cancelled, nothing was measured, or its host was busy).
    """
    forget(run)
    if run.state != "finished" or run.outcome in ("", "cancelled", "inconclusive") or run.finished_at is None:
        return None
    measured = Verification.objects.filter(run=run)
    confirmation, report = _confirmation(run)
    setup = _setup(run, confirmation)
    if setup is None:
        return None
    subject, _ = Subject.objects.get_or_create(sha=run.task.sha)
    faster = measured.filter(kind="verify", status="passed", speedup_low__gt=1).aggregate(at=Min("finished_at"))["at"]
    flags = {flag for found in measured.values_list("flags", flat=True) for flag in found}
    spent = run.spent or {}
    verdict = run.candidates.filter(number=run.best_candidate).values_list("verdict", flat=True).first() if run.best_candidate is not None else None
    with transaction.atomic():
        result = Result.objects.create(
            run=run, team_id=run.team_id, maker_id=run.created_by_id, task_id=run.task_id, subject=subject, entry=_entry(run), setup=setup,
            visibility=visibility_of(run), verdict=verdict or "", confirmed=confirmation is not None, candidate=run.best_candidate,
            verification=confirmation, flagged=bool(UNRANKED & flags), dollars=spent.get("dollars") or 0, tokens=spent.get("tokens") or 0,
            calls=spent.get("calls") or 0, seconds=_seconds(run, run.finished_at), faster_after=_seconds(run, faster),
            finished_at=run.finished_at, **_figures(report),
        )  # fmt: skip
        Provenance.objects.create(result=result, outcome=run.outcome, reason=run.reason, **_provenance(run, confirmation, report))
    return result


def _confirmation(run: Run) -> tuple[Verification | None, dict[str, Any]]:
    """Return the full verification behind the run's result, with its report.

    It belongs to the run's best candidate. If there are several, the newest one is used.
    """
    found = Verification.objects.filter(run=run, kind="verify", tier="full", status="passed", candidate_number=run.best_candidate)
    newest = found.select_related("result").order_by("-finished_at").first() if run.best_candidate is not None else None
    if newest is None or newest.result is None:
        return None, {}
    report = json.loads(artefacts.read(newest.result)).get("report") or {}
    if report.get("without_static") or "eager" not in _comparisons(report):
        return None, {}
    return newest, report


def _comparisons(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the comparisons keyed by baseline, excluding any rival program that was timed with the baselines."""
    found = (report.get("timing") or {}).get("comparisons") or []
    return {comparison["baseline"]: comparison for comparison in found if comparison["baseline"] in BASELINES}


def _figures(report: dict[str, Any]) -> dict[str, Any]:
    found = _comparisons(report)
    if not found:
        return {}
    speedups = {baseline: comparison["speedup"] for baseline, comparison in found.items()}
    best = speedups[_fastest(speedups)]
    columns = {COLUMNS[baseline]: speedup["ratio"] for baseline, speedup in speedups.items() if baseline in COLUMNS}
    return {
        "program_class": report.get("program_class") or "", "program_ms": report["timing"].get("program_ms"), **columns,
        "eager_low": speedups["eager"]["low"], "eager_high": speedups["eager"]["high"],
        "best": best["ratio"], "best_low": best["low"], "best_high": best["high"],
    }  # fmt: skip


def _fastest(speedups: dict[str, dict[str, float]]) -> str:
    """Return the fastest baseline, which is the one with the smallest speedup over it."""
    return min(speedups, key=lambda baseline: speedups[baseline]["ratio"])


def _provenance(run: Run, confirmation: Verification | None, report: dict[str, Any]) -> dict[str, Any]:
    if confirmation is None:
        return {}
    found = _comparisons(report)
    environment = report.get("environment") or {}
    return {
        "program_sha": report.get("program") or "",
        "report_sha": confirmation.result.sha if confirmation.result else "",
        "best_baseline": _fastest({baseline: comparison["speedup"] for baseline, comparison in found.items()}),
        "comparisons": {baseline: comparison["speedup"] | {"baseline_ms": comparison["baseline_ms"]} for baseline, comparison in found.items()},
        "own_share": report.get("own_share"),
        "floor_fraction": report.get("floor_fraction"),
        "peak_bytes": report.get("peak_bytes"),
        "flags": confirmation.flags,
        "environment": {name: environment.get(name) for name in ENVIRONMENT} | {"report": report.get("version")},
    }


def _setup(run: Run, confirmation: Verification | None) -> Setup | None:
    """Return device, precision, mode and clock.

    A run without a result counts for the setup in which its programs were tried. A run that tried nothing doesn't count.
    """
    seen = confirmation or Verification.objects.filter(run=run).exclude(device_model="").order_by("-finished_at").first()
    if seen is None:
        return None
    found, _ = Setup.objects.get_or_create(
        device_model=seen.device_model, precision=run.precision, mode=str((run.settings or {}).get("mode", "train"))[:8], clock=seen.clock or CLOCK,
        defaults={"device_kind": run.device_kind, "device_name": seen.device_name},
    )  # fmt: skip
    return found


def _entry(run: Run) -> Entry:
    settings = run.settings or {}
    built_in = without_models(run.workflow)
    roles = {role: "built-in" if built_in else str(settings.get(role) or "built-in")[:64] for role in ("planner", "coder", "judge")}
    known = {"workflow": run.workflow, **roles, "coder_mode": "" if built_in else str(settings.get("coder_mode") or "")[:20]}
    if known["coder_mode"] == "one":
        known["coder_mode"] = ""
    if not run.searches:
        known |= {"planner": "", "coder": "", "judge": "", "coder_mode": ""}
    known["language"] = str(settings.get("language") or "")[:8]
    team = run.team_id if not run.searches else None
    key = "/".join([*known.values(), str(team or "")])
    entry, _ = Entry.objects.get_or_create(key=key, defaults=known | {"team_id": team})
    return entry


def _seconds(run: Run, until: datetime | None) -> float | None:
    return (until - run.started_at).total_seconds() if until and run.started_at else None
