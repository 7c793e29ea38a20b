"""The evidence for a reward: a report that was parsed strictly, belongs to exactly this program, and does not contradict itself.

A rollout without such evidence is not a sample. A verdict about the host (a timeout, an infrastructure failure, a busy machine) says nothing about
the program. An impossible verdict (a NaN, a pass without trials) points to a fault in the judge or in transmission. Both raise `Unfit`: the rollout
is left out and does not count as a wrong answer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from verifier.jobs import JobResult
from verifier.report import CLOCK, SCHEMA_VERSION, Interval, Report
from verifier.source import sha256

HOSTS_FAULT = frozenset({"infrastructure_error", "timed_out"})
# Findings about the program itself that make a measurement inconclusive. In all other cases, the host is the cause.
PROGRAMS_DOING = frozenset({"background", "clock", "burns-cpu", "shortcut"})
# A passing report without these fields proves nothing, and a default would hide the missing value.
NEEDED = frozenset(
    {"version", "task", "program", "tier", "status", "trials", "findings", "timing", "kernels", "own_share", "program_class", "floor_fraction"}
)

ROUNDING = 1 + 1e-9

Given = Report | JobResult | Mapping[str, Any] | str | bytes


class Unfit(ValueError):
    """Raised if the rollout is not a sample. `kind` is one of "timeout", "infrastructure", "busy", "malformed", "contradiction", "other-program",
    "other-clock"."""

    def __init__(self, kind: str, message: str):
        super().__init__(message)
        self.kind = kind


def read(given: Given, task_source: str, program_source: str) -> Report:
    """Returns the report if it can be rewarded, which includes reports of failed programs. Raises `Unfit`."""
    report = _strict(given)
    if report.version != SCHEMA_VERSION:
        raise Unfit("malformed", f"a report of version {report.version}, and this is version {SCHEMA_VERSION}")
    for what, said, source in (("task", report.task, task_source), ("program", report.program, program_source)):
        if said != sha256(source):
            raise Unfit("other-program", f"the report is about another {what}: {said[:12]}, not {sha256(source)[:12]}")
    if report.status in HOSTS_FAULT:
        raise Unfit("timeout" if report.status == "timed_out" else "infrastructure", f"the verdict is {report.status}: no sample")
    if report.status == "inconclusive" and not PROGRAMS_DOING & {finding.rule for finding in report.findings}:
        raise Unfit("busy", "the host prevented the measurement: no sample")
    if report.status == "passed":
        _sound(report)
    return report


def best_interval(report: Report) -> tuple[str, Interval]:
    """Returns the baseline that is hardest to beat, judging by the lower ends of the intervals, and the interval against it. The report must come
    from `read`."""
    assert report.timing is not None
    compared = [c for c in report.timing.comparisons if c.baseline != "rival"]
    worst = min(compared, key=lambda c: c.speedup.low)
    return worst.baseline, worst.speedup


def _strict(given: Given) -> Report:
    """Parses without any type conversion: `"false"` is not a boolean, and 1 is not a string."""
    if isinstance(given, JobResult):
        if given.error:
            raise Unfit("infrastructure", "the verifier could not do the job: no sample")
        given = given.report if given.report is not None else {}
    try:
        if isinstance(given, Report):
            report = Report.model_validate(given.model_dump(), strict=True)
        elif isinstance(given, str | bytes):
            report = Report.model_validate_json(given, strict=True)
        else:
            report = Report.model_validate(dict(given), strict=True)
    except (ValidationError, ValueError, TypeError, RecursionError) as error:
        where = ".".join(map(str, error.errors()[0]["loc"])) if isinstance(error, ValidationError) and error.errors() else ""
        raise Unfit("malformed", f"this is not a report{f': {where}' if where else ''} ({type(error).__name__})") from None
    if missing := sorted(NEEDED - report.model_fields_set):
        raise Unfit("malformed", f"the report lacks {', '.join(missing)}")
    return report


def _sound(report: Report) -> None:
    """Checks that every part of a passing report is consistent with its having passed. Raises `Unfit`."""
    if report.without_static:
        raise Unfit("contradiction", "the static stage was switched off: such a report is never a result")
    if any(finding.severity == "refuse" for finding in report.findings):
        raise Unfit("contradiction", "it passed, although a finding refuses it")
    if not report.trials or not all(trial.ok for trial in report.trials):
        raise Unfit("contradiction", "it passed without a trial, or although one failed")
    if not all(_finite(trial.error) and _finite(trial.bound) for trial in report.trials):
        raise Unfit("contradiction", "it passed with an error or a bound that is not a number")
    if report.own_share is not None and not (_finite(report.own_share) and 0 <= report.own_share <= 1):
        raise Unfit("contradiction", "the share of own kernels is not between 0 and 1")
    if report.floor_fraction is not None and not (_finite(report.floor_fraction) and report.floor_fraction >= 0):
        raise Unfit("contradiction", "the share of the floor is not a share")
    _sound_timing(report)


def _sound_timing(report: Report) -> None:
    timing = report.timing
    if timing is None or not any(c.baseline == "eager" for c in timing.comparisons):
        raise Unfit("contradiction", "it passed, but was not timed against eager")
    if timing.clock != CLOCK:
        raise Unfit("other-clock", f"measured by version {timing.clock} of the clock, and this is version {CLOCK}")
    if not timing.clock_agrees:
        raise Unfit("contradiction", "it passed although the clocks disagree")
    for one in timing.comparisons:
        low, ratio, high = one.speedup.low, one.speedup.ratio, one.speedup.high
        positive = all(_finite(value) and value > 0 for value in (low, ratio, high, one.program_ms, one.baseline_ms))
        if not (positive and low <= ratio * ROUNDING and ratio <= high * ROUNDING):
            raise Unfit("contradiction", f"the interval against {one.baseline} is none")


def _finite(value: float | None) -> bool:
    return value is None or math.isfinite(value)
