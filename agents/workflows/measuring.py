"""The first and last steps of every workflow, which check whether the task is sound and how much a program really gains."""

from __future__ import annotations

import asyncio
from functools import partial

from agents.payloads import Failure
from agents.run import Engine
from agents.span import Ended, Span
from verifier.report import Report, Tier
from verifier.task import Admission

LATER_SECONDS = (20, 60)  # seconds to wait before repeating a measurement on a busy host
RIVALS_FAULT = "the program that it is timed against"  # start of the verifier's messages about problems with the rival


async def admit(run: Engine, capture_follows: bool = True) -> Admission:
    """Admits the task and returns the result. An unsound task ends the run with a list of its problems, one per line. `capture_follows` says whether
    the workflow captures the graph next."""
    async with run.span("admit", "Is the task sound?", "verifier") as span:
        admission = (await span.admit(capture_follows)).result.admission
        if admission is None:
            raise Ended("failed", "the verifier gave no admission")
        if not admission.ok:
            lines = [f"line {p.line}: {p.message}" if p.line else p.message for p in admission.problems] or ["the task was refused"]
            hints = [f"{line}; {p.hint}" if p.hint else line for line, p in zip(lines, admission.problems, strict=False)] or lines
            await span.say("verifier", "The task cannot be run.\n", *(f"- {hint}\n" for hint in hints))
            await span.emit(Failure(message="; ".join(lines)[:4000], where="the task", kept="the task's source"))
            raise Ended("failed", f"the task was not admitted: {'; '.join(lines)}"[:2000])
        span.summary = describe_task(admission)
        pieces = [f"The task is sound: {span.summary}."]
        if admission.flags:
            pieces.append(f" It is flagged as {' and '.join(admission.flags)}, so its result stays out of means and rankings.")
        await span.say("verifier", *pieces)
    return admission


def describe_task(admission: Admission) -> str:
    said = f"inputs {', '.join(admission.shapes)}" if admission.shapes else "no tensor inputs"
    if admission.parameters:
        said += f", {admission.parameters:,} parameters"
    if admission.eager_ms is not None:
        said += f", about {admission.eager_ms:.3g} ms a call in eager PyTorch"
    return said


async def measure(span: Span, source: str, number: int | None, tier: Tier, rival: str | None = None) -> Report:
    """Verifies a program, timing it alternately with its parent program (`rival`). An inconclusive measurement is repeated once with fresh
    seeds, after a wait if the host was busy. Without a `number`, the verdict belongs to no candidate and only compares two programs."""
    last = tier == "full"
    report = (await span.verify(source, number, tier, last=last, rival=rival)).result.report
    for seconds in LATER_SECONDS:
        if report is None or not report.host_busy:
            break
        await span.say("verifier", f"It could not be measured: {report.message}. That is the host's doing; measuring again in {seconds} s.")
        await span.effect("waited", partial(waited, span, seconds))
        report = (await span.verify(source, number, tier, last=last, rival=rival)).result.report
    if report is not None and report.status == "inconclusive" and not report.host_busy:
        await span.say("verifier", f"The measurement was inconclusive: {report.message} Measuring once more.")
        rival = None if report.message.startswith(RIVALS_FAULT) else rival  # the problem is not in this program, so it is measured alone
        report = (await span.verify(source, number, tier, last=last, rival=rival)).result.report
    if report is None:
        raise Ended("failed", "the verifier gave no report")
    return report


async def waited(span: Span, seconds: int) -> int:
    """Waits for the host to become idle. Meanwhile, the run can be paused or cancelled."""
    for _ in range(seconds):
        await asyncio.sleep(1.0)
        await span.run.gate()
    return seconds


def verdict(report: Report) -> str:
    """Describes a report in a few words."""
    speedup = report.speedup
    if report.status != "passed" or speedup is None:
        return (f"{report.status.replace('_', ' ')}: {report.message}" if report.message else report.status.replace("_", " "))[:600]
    said = f"{speedup.ratio:.2f}x [{speedup.low:.2f}, {speedup.high:.2f}] vs eager"
    others = [c for c in report.timing.comparisons if c.baseline != "eager"] if report.timing else []
    if others:
        best = min(others, key=lambda c: c.speedup.ratio)
        said += f", {best.speedup.ratio:.2f}x [{best.speedup.low:.2f}, {best.speedup.high:.2f}] vs {best.baseline}"
    rival = report.timing.rival if report.timing else None
    if rival is not None:
        said += f", {rival.speedup.ratio:.3f}x [{rival.speedup.low:.3f}, {rival.speedup.high:.3f}] vs the program from which it was derived"
    if report.program_class:
        share = f" ({100 * report.own_share:.0f} % own kernels)" if report.own_share is not None else ""
        said += f", {report.program_class}{share}"
    return said
