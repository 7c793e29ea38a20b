"""Random search: the control that every other workflow has to beat. It draws ideas, crossovers of ideas and programs' numbers at random, and learns
nothing."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial

from agents.roles.obeying import heed
from agents.roles.situation import Attempt, Edit, Idea, Roles, Situation
from agents.run import Engine, Finish
from agents.span import Span
from agents.stopping import enough
from agents.workflows.attempting import write_and_try
from agents.workflows.solving import solve
from agents.workflows.translating import Ideas, new_ideas, realise

POOL = 10  # number of ideas requested per call
NUMBERS = 0.5  # share of the draws that change numbers if the program has any
CROSS = 0.3  # share of the remaining draws that cross two ideas
BASE = 0.5  # share of the ideas that start from a program instead of the task
FRUITLESS = 20  # limit on consecutive draws without a new program


async def random_search(run: Engine) -> Finish:
    return await solve(run, search, tune_last=False)


async def search(run: Engine, situation: Situation, roles: Roles) -> str:
    draws = Draws(run, situation, roles)
    await write_and_try(run, situation, "first", None, lambda span: roles.coder.write(span, situation, None, None))
    number = fruitless = 0
    while fruitless < FRUITLESS:
        if reason := enough(run, situation):
            return reason
        number += 1
        base = draws.base()
        attempt = await write_and_try(run, situation, f"draw-{number}", base, partial(draws.program, base=base))
        fruitless = 0 if attempt is not None else fruitless + 1
    return f"{FRUITLESS} draws in a row gave no new program"


class Draws:
    """All randomness comes from the seed, in the order of the draws, so a resumed run makes the same draws."""

    def __init__(self, run: Engine, situation: Situation, roles: Roles):
        self.situation, self.roles = situation, roles
        self.draw = random.Random(f"{run.settings.seed}/random")
        self.ideas = Ideas()
        self.fresh: list[Idea] = []
        self.more = True

    def base(self) -> Attempt | None:
        passed = [a for a in self.situation.attempts if a.passed]
        return self.draw.choice(passed) if passed and self.draw.random() < BASE else None

    async def program(self, span: Span, base: Attempt | None) -> Edit | None:
        await heed(span, self.situation, "coder")
        if base is not None and self.draw.random() < NUMBERS:
            knobs = self.roles.coder.knobs(self.situation, base)
            values = {knob.name: self.draw.choice(knob.values) for knob in knobs}
            if knobs:
                edit = await self.roles.coder.tune(span, self.situation, base, values)
                return edit if edit is not None and all(edit.source != a.edit.source for a in self.situation.attempts) else None
        if len(self.ideas.known) > 1 and self.draw.random() < CROSS:
            first, second = self.draw.sample(self.ideas.known, 2)
            crossed = replace(await self.roles.planner.cross(span, self.situation, first, second), parents=(first.number, second.number))
            idea: Idea | None = await self.ideas.add(span, "cross", crossed, self.ideas.number())
        else:
            idea = await self.idea(span)
        return await realise(span, self.situation, self.roles, idea, base) if idea is not None else None

    async def idea(self, span: Span) -> Idea | None:
        """Returns an idea that has not been drawn yet. If none is left, returns any idea, because a model's second program may differ from its
        first."""
        if not self.fresh and self.more:
            self.fresh = list(await new_ideas(span, self.situation, self.roles, self.ideas, POOL))
            self.more = bool(self.fresh)
        if self.fresh:
            return self.fresh.pop(self.draw.randrange(len(self.fresh)))
        return self.draw.choice(self.ideas.known) if self.ideas.known else None
