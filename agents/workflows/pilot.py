"""cuPilot: evolves a population of strategies instead of programs.

Crossover combines the parents' strategies. The child is translated into a program and revised until it is correct. It is then re-aligned, so that its
strategy describes what the surviving program does before the next crossover.

Taken from the paper (arXiv 2512.16465): strategies as the unit of evolution, the first kernel, an initial population, tournaments, one exploratory
child per generation, elitism, and epochs, each of which starts from the best kernels of the previous one. The paper does not give its sizes. Three
epochs of four generations, a population of 30, five children and three revisions come from a re-implementation and are scaled to the budget. Our own
additions: fitness is the lower bound of the measured speedup, and the plan's roofline guides the planner instead of a model's guess.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from agents.roles.situation import Attempt, Idea, Roles, Situation, Unusable
from agents.run import Engine, Finish, all_of
from agents.settings import Budget
from agents.span import Span
from agents.stopping import enough, plateau
from agents.workflows.attempting import write_and_try
from agents.workflows.solving import solve
from agents.workflows.translating import Ideas, new_ideas, translate

REVISIONS = 3
ELITE = 2
TOURNAMENT = 2
CALLS_A_PROGRAM = 3  # calls per child: cross, translate and align; revisions count as separate programs


@dataclass(frozen=True)
class Sizes:
    epochs: int
    generations: int
    population: int
    offspring: int


@dataclass(frozen=True)
class Member:
    idea: Idea
    attempt: Attempt

    @property
    def fitness(self) -> float:
        return self.attempt.score


Maker = Callable[[Span, Situation], Awaitable[Idea | None]]

STEPS = ((3, 4, 5), (2, 4, 5), (2, 3, 4), (1, 3, 3), (1, 2, 2), (1, 1, 1))  # epochs, generations, offspring


def sizes_for(budget: Budget) -> Sizes:
    """Returns the default sizes or, if they do not fit into the program budget, the largest ones that fit and keep the population larger than its
    offspring."""
    programs = min(budget.candidates or 10**6, budget.calls // CALLS_A_PROGRAM if budget.calls is not None else 10**6) - 1  # without the first kernel
    for epochs, generations, offspring in STEPS:
        population = min(30, programs // epochs - generations * offspring)
        if population > offspring:
            return Sizes(epochs, generations, population, offspring)
    return Sizes(1, 1, 2, 1)


async def pilot(run: Engine) -> Finish:
    return await solve(run, search)


async def search(run: Engine, situation: Situation, roles: Roles) -> str:
    evolution = Evolution(run, situation, roles)
    await write_and_try(run, situation, "first", None, lambda span: roles.coder.write(span, situation, None, None))
    sizes = sizes_for(run.settings.budget)
    for epoch in range(1, sizes.epochs + 1):
        async with run.span(f"epoch-{epoch}", f"Epoch {epoch} of {sizes.epochs}", "planner") as span:
            reason = await evolution.epoch(f"epoch-{epoch}", sizes)
            best = situation.best
            span.summary = f"the best is {best.speedup.ratio:.2f}x (candidate {best.number})" if best else "no program passed"
        if reason is not None:
            return reason
    return f"{sizes.epochs} epoch{'s' if sizes.epochs > 1 else ''} of {sizes.generations} generations are over"


class Evolution:
    def __init__(self, run: Engine, situation: Situation, roles: Roles):
        self.run, self.situation, self.roles = run, situation, roles
        self.ideas = Ideas()
        self.draw = random.Random(f"{run.settings.seed}/pilot")  # used only between generations, so that a resumed run draws the same members
        self.members: list[Member] = []

    async def epoch(self, path: str, sizes: Sizes) -> str | None:
        """Runs one epoch on the best kernel so far. Returns the reason why the search ends, or None if it does not."""
        kernel = self.situation.best
        self.members = ranked(self.members)[:ELITE]
        async with self.run.span(f"{path}/population", "Draw a population of strategies", "planner") as span:
            wanted = sizes.population - len(self.members)
            drawn = await new_ideas(span, self.situation, self.roles, self.ideas, wanted)
            span.summary = f"{len(drawn)} new strategies"
        born = await self.together(f"{path}/population", [self.known(idea) for idea in drawn], kernel)
        self.members = ranked([*self.members, *born])[: sizes.population]
        for generation in range(1, sizes.generations + 1):
            if reason := enough(self.run, self.situation):
                return reason
            if len(self.members) < 2:
                return "fewer than two strategies gave a program, so there is nothing to cross"
            if plateau(self.situation, patience=sizes.population + 2 * sizes.offspring):
                return None  # the next epoch starts from different kernels
            where = f"{path}/generation-{generation}"
            async with self.run.span(where, f"Generation {generation}", "planner") as span:
                before = len(self.situation.attempts)
                makers = [self.crossed(*self.parents(), self.ideas.number()) for _ in range(sizes.offspring - 1 or 1)]
                if sizes.offspring > 1:
                    makers += [self.known(idea) for idea in await new_ideas(span, self.situation, self.roles, self.ideas, 1)]  # exploratory
                born = await self.together(where, makers, kernel)
                self.members = self.survivors([*self.members, *born], sizes.population)
                span.summary = f"{len(self.situation.attempts) - before} programs, {len(born)} children"
        return enough(self.run, self.situation)

    def parents(self) -> tuple[Idea, Idea]:
        """Returns two members, each the winner of a tournament."""
        first = self.tournament(self.members)
        return first.idea, self.tournament([m for m in self.members if m is not first]).idea

    def tournament(self, members: Sequence[Member]) -> Member:
        return max(self.draw.sample(list(members), min(TOURNAMENT, len(members))), key=lambda m: m.fitness)

    def survivors(self, members: list[Member], count: int) -> list[Member]:
        """Returns the elite, followed by the winners of tournaments among the rest."""
        kept = ranked(members)[:ELITE]
        rest = [m for m in members if m not in kept]
        while rest and len(kept) < count:
            winner = self.tournament(rest)
            rest.remove(winner)
            kept.append(winner)
        return kept

    # makers of a child's strategy: `async (span, situation) -> Idea or None`

    def known(self, idea: Idea) -> Maker:
        async def given(_span: Span, _situation: Situation) -> Idea | None:
            return idea

        return given

    def crossed(self, first: Idea, second: Idea, number: int) -> Maker:
        async def cross(span: Span, situation: Situation) -> Idea | None:
            try:
                child = await self.roles.planner.cross(span, situation, first, second)
            except Unusable as refused:
                span.fail(f"no usable strategy: {refused.reason}"[:500])
                return None
            return await self.ideas.add(span, "cross", replace(child, parents=(first.number, second.number)), number)

        return cross

    async def together(self, path: str, makers: list[Maker], kernel: Attempt | None) -> list[Member]:
        """Produces children concurrently: each strategy is created, translated, revised and re-aligned. Returns the children whose programs
        passed."""
        places, shown = asyncio.Semaphore(self.run.settings.workers), replace(self.situation, attempts=list(self.situation.attempts), refusals=[])

        async def child(number: int, make: Maker) -> Member | None:
            where = f"{path}/child-{number}"
            async with places, self.run.span(where, f"Child {number}", "planner") as span:
                idea = await make(span, shown)
                if idea is None:
                    return None
                own = await translate(self.run, self.situation, self.roles, where, idea, kernel, seen=shown.attempts, repairs=REVISIONS)
                if not own or not own[-1].passed:
                    span.fail(f"strategy {idea.number} gave no {'correct' if own else 'new'} program")
                    return None
                attempt = own[-1]
                span.summary = f"strategy {idea.number}, candidate {attempt.number}: {attempt.speedup.ratio:.2f}x"
                try:
                    aligned = await self.roles.planner.align(span, shown, idea, attempt)
                except Unusable:
                    return Member(idea, attempt)  # keeps the original idea if nothing is known about how it was realised
                aligned = replace(aligned, parents=idea.parents)
                return Member(await self.ideas.add(span, "align", aligned, idea.number, attempt.number), attempt)

        done = all_of(await self.run.parallel(*(child(n, make) for n, make in enumerate(makers, start=1))))
        return [member for member in done if member is not None]


def ranked(members: Sequence[Member]) -> list[Member]:
    return sorted(members, key=lambda m: (-m.fitness, m.attempt.number))
