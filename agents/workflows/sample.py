"""Sampling alone: first programs of independent ideas, none built on another."""

from __future__ import annotations

from agents.roles.situation import Roles, Situation
from agents.run import Engine, Finish
from agents.stopping import enough
from agents.workflows.attempting import write_and_try
from agents.workflows.solving import solve
from agents.workflows.translating import Ideas, new_ideas, realise


async def sample(run: Engine) -> Finish:
    return await solve(run, search)


async def search(run: Engine, situation: Situation, roles: Roles) -> str:
    ideas, before = Ideas(), -1
    while len(situation.attempts) > before:
        before = len(situation.attempts)
        async with run.span(f"batch-{len(ideas.known)}", "New ideas", "planner") as span:
            wanted = await new_ideas(span, situation, roles, ideas, 4)
        if not wanted:
            return "there is no further idea"
        for idea in wanted:
            if reason := enough(run, situation):
                return reason
            await write_and_try(run, situation, f"idea-{idea.number}", None, lambda s, idea=idea: realise(s, situation, roles, idea, None))
    return "the last ideas brought no new program"
