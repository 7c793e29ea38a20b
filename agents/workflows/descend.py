"""No language model: a short exploration of structures by the compiler's moves, then coordinate descent over the numbers of the best program.

From the papers (Ansor, arXiv 2006.06762; "Explore as a Storm, Exploit as a Raindrop", arXiv 2406.20037): a truncated exploration whose best sample
starts the descent. Ours: the samples of the exploration are the compiler's moves against a measured bottleneck instead of random sketches.
"""

from __future__ import annotations

from agents.roles.situation import Advice, Roles, Situation
from agents.run import Engine, Finish
from agents.stopping import enough
from agents.workflows.attempting import attempt_once
from agents.workflows.descending import MOST_MEASURED, descend_numbers
from agents.workflows.solving import solve

EXPLORED = 5  # programs before the descent at most
NUMBERS = "block-size"  # the method that the descent takes over
REPAIRS = 5


async def descend(run: Engine) -> Finish:
    return await solve(run, search, built_in=("planner", "coder", "judge"), tune_last=False)


async def search(run: Engine, situation: Situation, roles: Roles) -> str:
    reason = await explore(run, situation, roles)
    best = situation.best
    if best is None or enough(run, situation) is not None:
        return reason
    return f"{reason} Then {await descend_numbers(run, situation, roles, best, MOST_MEASURED)}."


async def explore(run: Engine, situation: Situation, roles: Roles) -> str:
    """The first program, and moves of structure on the best one as long as they are advised: at most EXPLORED programs, or half the budget."""
    allowed = run.settings.budget.candidates
    most = min(EXPLORED, max(1, allowed // 2)) if allowed is not None else EXPLORED
    advice: Advice | None = None
    decision: int | None = None
    repairs = tried = 0
    async with run.span("explore", "Explore structures", "coder") as span:
        while True:
            tried += 1
            parent = situation.attempts[-1] if advice and advice.route == "repair" else situation.best
            turn = await attempt_once(run, situation, roles, f"explore/{tried}", parent, advice, decision)
            if turn is None:
                reason = "Nothing is left to write."
                break
            advice, decision = turn.advice, turn.decision
            repairs = repairs + 1 if advice.route == "repair" else 0
            if reached := enough(run, situation):
                reason = reached
            elif repairs > REPAIRS:
                reason = f"{REPAIRS} repairs in a row did not help."
            elif advice.route == "stop":
                reason = f"The exploration ends: {advice.reason}"
            elif advice.method == NUMBERS:
                reason = "Only numbers are left to choose."
            elif tried >= most and situation.best is not None:
                reason = f"The exploration ends after {tried} program{'s' if tried != 1 else ''}."
            else:
                continue
            break
        span.summary = reason[:500]
    return reason
