"""CudaForge's loop: a Coder and a Judge alternate, with one correction or one optimisation per round.

Taken from the paper (arXiv 2511.01884): there are ten rounds, and every round starts from the latest kernel, even if it is worse. The Judge names
either one defect and its smallest fix, or one bottleneck and one method. Both agents see the latest kernel, the latest judgement and the task, but no
history. The best correct kernel is kept separately. Our own additions: the rounds end early at the target, at 95 % of the floor, or if the Judge has
nothing more to suggest, and the best program is confirmed at the end.
"""

from __future__ import annotations

from dataclasses import replace

from agents.roles.situation import Advice, Attempt, Roles, Situation, Unusable
from agents.run import Engine, Finish
from agents.stopping import enough
from agents.workflows.attempting import advise, settle, try_edit, unusable
from agents.workflows.solving import solve

ROUNDS = 10


async def forge(run: Engine) -> Finish:
    return await solve(run, search)


async def search(run: Engine, situation: Situation, roles: Roles) -> str:
    latest: Attempt | None = None
    advice: Advice | None = None
    decision: int | None = None
    for number in range(1, ROUNDS + 1):
        async with run.span(f"round-{number}", title(latest, advice), "coder") as span:
            try:
                edit = await roles.coder.write(span, only(situation, latest), latest, advice)
            except Unusable as refused:  # the round yields nothing, and the next prompt gives the reason
                turn = await unusable(span, situation, refused, advice, decision)
                advice = turn.advice if latest is not None else None
                continue
            if edit is None:
                span.skip("the coder has no further program")
                return "the coder has no further program to propose; stopped early"
            latest = await try_edit(run, span, situation, edit, latest)
            if decision is not None and advice is not None:
                await settle(span, latest, advice, decision)
            if number == ROUNDS:
                break
            advice, decision = await advise(run, span, only(situation, latest), roles, latest, lambda run, _, given: ended(run, situation, given))
        if advice.route == "stop":
            return advice.reason
    return f"the {ROUNDS} rounds are over"


def only(situation: Situation, latest: Attempt | None) -> Situation:
    """Returns the situation as shown to a role: the task and the latest kernel."""
    return replace(situation, attempts=[latest] if latest is not None else [])


def ended(run: Engine, situation: Situation, advice: Advice) -> Advice:
    """Returns the engine's reason to stop, if any, based on the best of all rounds."""
    reason = enough(run, situation)
    return replace(advice, route="stop", method=None, expected=None, move=None, reason=reason) if reason else advice


def title(latest: Attempt | None, advice: Advice | None) -> str:
    if latest is None or advice is None:
        return "Write the kernel"
    if advice.route == "repair":
        return f"Correct candidate {latest.number}"
    return f"Optimise candidate {latest.number}" + (f": {advice.method}" if advice.method else "")
