"""The steps around every search: preparation, and processing of the search's result."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from agents.budget import OutOfBudget
from agents.roles.situation import Roles, Situation
from agents.run import Engine, Finish
from agents.workflows.confirming import confirm
from agents.workflows.descending import descend_last
from agents.workflows.measuring import admit
from agents.workflows.understanding import plan, understand

Search = Callable[[Engine, Situation, Roles], Awaitable[str]]


async def solve(run: Engine, search: Search, *, tune_last: bool = True) -> Finish:
    """Runs admission, graph capture, profiling and planning, then the search, which returns the reason why it ended, and finally tunes the numbers
    and confirms the winner."""
    roles = run.cast()
    situation = Situation(run.task_source, run.task_name, run.settings)
    situation.admission = await admit(run)
    await understand(run, situation)
    await plan(run, situation, roles)
    try:
        reason, spent = await search(run, situation, roles), False
        if tune_last:
            reason = await descend_last(run, situation, roles, reason)
    except OutOfBudget as error:
        reason, spent = f"{error}, so the search ends here", True
    return await confirm(run, situation, reason, spent)
