"""When a search ends, the same for all workflows: the target, the floor, a plateau; the budget ends it by `OutOfBudget`.

A plateau is answered in two steps. After `patience` programs without a gain the methods must come from another family of strategies than those
that brought nothing (`families_to_leave`, which verifiers read before they advise); after twice as many, or where the advice stays in those
families, the search ends. From the research notes: KernelArc switches families at a plateau, SOL-ExecBench's runs stop near the floor.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from agents.strategies import strategies_of
from verifier.profiling.diagnosing.diagnosis import FLOOR_BEATEN

if TYPE_CHECKING:
    from agents.roles.situation import Advice, Attempt, Situation
    from agents.run import Engine

PATIENCE = 3  # programs in a row that bring less than GAIN
GAIN = 1.02
NEAR_FLOOR = 0.95


def stopping(run: Engine, situation: Situation, advice: Advice, *, patience: int = PATIENCE) -> Advice:
    """The advice, or one to stop where the engine has a reason of its own. Population searches give a `patience` of some generations."""
    if advice.route == "stop":
        return advice
    reason = enough(run, situation) or plateau(situation, advice, patience=patience)
    return replace(advice, route="stop", method=None, expected=None, move=None, reason=reason) if reason else advice


def enough(run: Engine, situation: Situation) -> str | None:
    """Why the best program is good enough, or null: the target is reached, or 95 % of the floor."""
    best, target = situation.best, run.settings.target
    if best is None:
        return None
    low = best.speedup.low
    if target is not None and low >= target:
        return f"The target of {target:g}x is reached: the lower bound of candidate {best.number} is {low:.2f}x."
    reached = fraction_of_floor(situation, best)
    if reached is not None and NEAR_FLOOR <= reached <= 1 / FLOOR_BEATEN:  # a floor that is clearly beaten is none
        return f"Candidate {best.number} is at {100 * reached:.0f} % of the floor: nothing is left that would pay."
    return None


def fraction_of_floor(situation: Situation, attempt: Attempt) -> float | None:
    """Floor over the program's time; null where it is not known."""
    floor, timing = floor_ms(situation, attempt), attempt.verdict.timing
    if floor and timing is not None:
        return floor / timing.program_ms
    return attempt.verdict.floor_fraction


def floor_ms(situation: Situation, attempt: Attempt) -> float | None:
    """The task's by `agents.floor`, as the plan has it; without one the verifier's, which is by the device's data sheet."""
    plan, report = situation.plan, attempt.report
    return (plan.floor_ms if plan is not None else None) or (report.floor_ms if report is not None else None)


def plateau(situation: Situation, advice: Advice | None = None, *, patience: int = PATIENCE) -> str | None:
    """Why the search stands still, or null. With an advice: it may go on for another `patience` where that leaves the barren families."""
    flat = since_last_gain(situation.attempts)
    if len(flat) < patience:
        return None
    said = f"The last {len(flat)} programs brought less than {100 * (GAIN - 1):.0f} % over the best before them: a plateau"
    left = families_to_leave(situation, patience=patience)
    if len(flat) >= 2 * patience:
        return f"{said}, after a change of the family of strategies too."
    if advice is not None and (advice.route in ("repair", "re-plan") or (advice.method and family(advice.method) not in left)):
        return None
    return f"{said}, and no other family of strategies than {', '.join(sorted(left))} is left." if left else f"{said}."


def families_to_leave(situation: Situation, *, patience: int = PATIENCE) -> frozenset[str]:
    """Families whose strategies brought nothing since the last gain, once they had `patience` programs; empty before."""
    flat = since_last_gain(situation.attempts)
    if len(flat) < patience:
        return frozenset()
    return frozenset(family(a.edit.strategy) for a in flat[:patience] if a.edit.strategy)


def since_last_gain(attempts: list[Attempt]) -> list[Attempt]:
    """The attempts after the last one that was at least GAIN times as fast as all before it; all where nothing has passed yet is none."""
    best, gained = 0.0, len(attempts)
    for index, attempt in enumerate(attempts):
        if attempt.passed and attempt.level >= best * GAIN:
            best, gained = attempt.level, index + 1
    return attempts[gained:]


def family(strategy: str) -> str:
    """Returns the family in the catalogue: for a combination its parts' where they share one; else, as for unknown methods, its own."""
    found = {known.family for known in strategies_of(strategy)}
    return found.pop() if len(found) == 1 else strategy
