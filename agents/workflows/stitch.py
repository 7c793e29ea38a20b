"""StitchCUDA's loop: plan, write, verify, profile, diagnose, and let each further program answer the diagnosis of the one before.

From the paper (arXiv 2603.02637): the three roles, the profile before the plan, one method a round. Ours: the stopping rules, which are
shown with their figures, and the confirmation of the winner in tier full on fresh seeds.
"""

from __future__ import annotations

from agents.budget import OutOfBudget
from agents.roles.situation import Advice, Roles, Situation
from agents.run import Engine, Finish
from agents.stopping import stopping
from agents.workflows.attempting import attempt_once
from agents.workflows.confirming import confirm
from agents.workflows.measuring import admit, verdict
from agents.workflows.understanding import plan, understand

MAX_REPAIRS = 5  # in a row


async def stitch(run: Engine) -> Finish:
    situation = Situation(run.task_source, run.task_name, run.settings)
    roles = run.cast()
    situation.admission = await admit(run)
    await understand(run, situation)
    await plan(run, situation, roles)
    try:
        reason, spent = await search(run, situation, roles), False
    except OutOfBudget as error:
        reason, spent = f"{error}, so the search ends here", True
    return await confirm(run, situation, reason, spent)


async def search(run: Engine, situation: Situation, roles: Roles) -> str:
    """Programs until one of the reasons to stop holds; returns that reason."""
    advice: Advice | None = None
    decision: int | None = None  # seq
    step = repairs = 0
    while True:
        step += 1
        title = f"Answer the diagnosis: {advice.method}" if advice and advice.method else "Write the program"
        async with run.span(f"step-{step}", title, "coder") as span:
            attempts = 0
            while True:
                attempts += 1
                parent = situation.attempts[-1] if advice and advice.route == "repair" else situation.best
                path = f"{span.path}/attempt-{attempts}"
                turn = await attempt_once(run, situation, roles, path, parent, advice, decision, stopping=stopping)
                if turn is None:
                    span.skip("nothing left to write")
                    return "the coder has nothing left to write"
                advice, decision = turn.advice, turn.decision
                repairs = repairs + 1 if turn.attempt is None or advice.route == "repair" else 0
                if not repairs or repairs > MAX_REPAIRS:
                    break
            if turn.passed:
                span.summary = verdict(turn.attempt.report)
            else:
                span.fail(verdict(turn.attempt.report) if turn.attempt else "no usable program")
        if repairs > MAX_REPAIRS:
            return f"{MAX_REPAIRS} repairs in a row did not help"
        if advice.route == "stop":
            return advice.reason
