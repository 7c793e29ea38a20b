"""Stopping rules shared by all workflows: the target, the floor, a plateau. The budget ends a search separately, through `OutOfBudget`.

A plateau is handled in two steps. After `patience` programs without a gain, methods must come from a different family of strategies from those that
yielded no gain (`families_to_leave`, which verifiers read before they advise). The search ends after twice as many programs, or if the advice stays
within those families. These rules are based on published work: KernelArc switches families on a plateau, and SOL-ExecBench's runs stop near the
floor.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from agents.strategies import strategies_of
from verifier.profiling.diagnosing.diagnosis import FLOOR_BEATEN

if TYPE_CHECKING:
    from agents.roles.situation import Advice, Attempt, Situation
    from agents.run import Engine

PATIENCE = 3  # number of consecutive programs that gain less than GAIN
GAIN = 1.02
NEAR_FLOOR = 0.95


def stopping(run: Engine, situation: Situation, advice: Advice, *, patience: int = PATIENCE) -> Advice:
    """Returns the given advice, or advice to stop if the engine has a reason to stop. Population searches pass a `patience` of several
    generations."""
    if advice.route == "stop":
        return advice
    reason = enough(run, situation) or plateau(situation, advice, patience=patience)
    return replace(advice, route="stop", method=None, expected=None, move=None, reason=reason) if reason else advice


def enough(run: Engine, situation: Situation) -> str | None:
    """Returns the reason why the best program is good enough (it reached the target, or 95 % of the floor), or None if it is not."""
    best, target = situation.best, run.settings.target
    if best is None:
        return None
    low = best.speedup.low
    if target is not None and low >= target:
        return f"The target of {target:g}x is reached: the lower bound of candidate {best.number} is {low:.2f}x."
    reached = fraction_of_floor(situation, best)
    if reached is not None and NEAR_FLOOR <= reached <= 1 / FLOOR_BEATEN:  # a floor that a program clearly beats must be wrong
        return f"Candidate {best.number} is at {100 * reached:.0f} % of the floor: no worthwhile gain is left."
    return None


def fraction_of_floor(situation: Situation, attempt: Attempt) -> float | None:
    """Returns the floor divided by the program's time, or None if that is unknown."""
    floor, timing = floor_ms(situation, attempt), attempt.verdict.timing
    if floor and timing is not None:
        return floor / timing.program_ms
    return attempt.verdict.floor_fraction


def floor_ms(situation: Situation, attempt: Attempt) -> float | None:
    """Returns the task's floor from `agents.floor`, as recorded in the plan, or otherwise the verifier's floor from the device's data sheet."""
    plan, report = situation.plan, attempt.report
    return (plan.floor_ms if plan is not None else None) or (report.floor_ms if report is not None else None)


def plateau(situation: Situation, advice: Advice | None = None, *, patience: int = PATIENCE) -> str | None:
    """Returns the reason why the search is considered to be on a plateau, or None if it is not. If the advice leads away from the families that
    yielded no gain, the search may continue for another `patience` programs."""
    flat = since_last_gain(situation.attempts)
    if len(flat) < patience:
        return None
    said = f"The last {len(flat)} programs gained less than {100 * (GAIN - 1):.0f} % over the best before them: a plateau"
    left = families_to_leave(situation, patience=patience)
    if len(flat) >= 2 * patience:
        return f"{said}, after a change of the family of strategies too."
    if advice is not None and (advice.route in ("repair", "re-plan") or (advice.method and family(advice.method) not in left)):
        return None
    return f"{said}, and no other family of strategies than {', '.join(sorted(left))} is left." if left else f"{said}."


def families_to_leave(situation: Situation, *, patience: int = PATIENCE) -> frozenset[str]:
    """Returns the families of the strategies tried since the last gain, or an empty set if fewer than `patience` programs have been tried
    since then."""
    flat = since_last_gain(situation.attempts)
    if len(flat) < patience:
        return frozenset()
    return frozenset(family(a.edit.strategy) for a in flat[:patience] if a.edit.strategy)


def since_last_gain(attempts: list[Attempt]) -> list[Attempt]:
    """Returns the attempts after the last one that was at least GAIN times as fast as all earlier ones. Returns no attempts if none has passed
    yet."""
    best, gained = 0.0, len(attempts)
    for index, attempt in enumerate(attempts):
        if attempt.passed and attempt.level >= best * GAIN:
            best, gained = attempt.level, index + 1
    return attempts[gained:]


def family(strategy: str) -> str:
    """Returns the strategy's family in the catalogue. A combination belongs to the family of its parts if they share one. Any other combination or
    unknown method is a family of its own."""
    found = {known.family for known in strategies_of(strategy)}
    return found.pop() if len(found) == 1 else strategy
