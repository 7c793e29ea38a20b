"""Ensures that no run ends with a program that is slower than one line of PyTorch. If a baseline is faster than the winner, it is turned into a
program and measured like any other."""

from __future__ import annotations

from agents.budget import OutOfBudget
from agents.roles.compiled import Compiled
from agents.roles.situation import Attempt, Edit, Situation
from agents.span import Span
from agents.workflows.measuring import measure, verdict
from compiler.program.by_pytorch import WORDS, print_baseline
from verifier.report import Baseline, Report

TAKEN = "yield-to-baseline"
NO_GRAPH = "forward is not captured as a whole, or its operators or arguments cannot be recorded"


async def yielded(span: Span, situation: Situation, winner: Attempt, report: Report) -> tuple[Attempt, Report]:
    """Returns the winner with its full-tier report, or the program of a baseline if a measurement shows that it is faster. Tries one baseline after
    another as long as one is faster than the winner. The fastest baseline may have no program, or a program that does not pass or is no faster."""
    data = situation.plan.data if situation.plan is not None else None
    if situation.settings.winner != "fastest" or not isinstance(data, Compiled) or data.plan.asked_for:
        return winner, report
    tried: set[Baseline] = set()
    while (baseline := next((one for one in faster(report) if one not in tried), None)) is not None:
        tried.add(baseline)
        source, words = print_baseline(data.plan, situation.task_source, baseline), WORDS[baseline]
        if source is None:
            await span.say("coder", f"{words} is faster than candidate {winner.number}, but cannot be turned into a program: {NO_GRAPH}.")
        if source is None or any(attempt.edit.source == source for attempt in situation.attempts):
            continue
        says = f"{words} is faster than candidate {winner.number} ({standing(report):.2f}x the best baseline), so it is tried as the program."
        edit = Edit(source, words[:200], f"everything by {words}", (says,), TAKEN)
        try:
            attempt, other = await _tried(span, situation, winner, edit)
        except OutOfBudget as error:
            await span.say("verifier", f"{error}: {words} is not tried as the program.")
            break
        await span.say("verifier", f"Candidate {attempt.number}, {words}: {verdict(other)}.")
        if other.status == "passed" and standing(other) > standing(report):
            winner, report = attempt, other
    return winner, report


async def _tried(span: Span, situation: Situation, winner: Attempt, edit: Edit) -> tuple[Attempt, Report]:
    await span.say("coder", *edit.says)
    proposed = await span.propose(
        edit.source, parent=winner.number, title=edit.title, step="", changes=edit.changes, strategy=edit.strategy, last=True
    )
    attempt = Attempt(proposed.candidate, winner.number, edit)
    situation.attempts.append(attempt)
    attempt.report = await measure(span, edit.source, attempt.number, "full")
    return attempt, attempt.report


def faster(report: Report) -> list[Baseline]:
    """Returns the baselines whose whole confidence interval is faster than the program, fastest first."""
    others = report.timing.comparisons if report.timing is not None else []
    ahead = sorted((one for one in others if one.speedup.high < 1), key=lambda one: one.speedup.ratio)
    return [one.baseline for one in ahead if one.baseline != "rival"]


def standing(report: Report) -> float:
    """Returns the speedup over the fastest baseline in the same measurement. If it exceeds 1, the program is faster."""
    return min((one.speedup.ratio for one in report.timing.comparisons), default=0.0) if report.timing is not None else 0.0
