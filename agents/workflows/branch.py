"""PIKE-B: each phase runs ten branches from the four fastest programs, each with at most five repairs. It favours exploitation over exploration.

Taken from the paper and its code (arXiv 2511.16964): at most ten ideas, one optimiser per branch, an error fixer with at most five fixes per attempt,
300 queries per task including fixes, the four fastest programs as parents that share a phase's ten branches, and a pool that always contains the
reference. Our own additions: each phase asks for new ideas (because a model may give the same answer twice for the same parent), the fixer reads the
verifier's report, workers wait for a free slot and for the budget before each call, and the search ends at a plateau of two phases.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from agents.roles.situation import Attempt, Idea, Roles, Situation
from agents.run import Engine, Finish, all_of
from agents.stopping import enough, plateau
from agents.workflows.descending import speed
from agents.workflows.solving import solve
from agents.workflows.translating import Ideas, new_ideas, translate

BRANCHES = 10  # branches per phase, and also the maximum number of ideas
PARENTS = 4
FIXES = 5  # fixes per attempt
QUERIES = 300
REFERENCE = 1.0  # speed of the task's own model, which is in the pool without being a candidate


async def branch(run: Engine) -> Finish:
    return await solve(run, search)


async def search(run: Engine, situation: Situation, roles: Roles) -> str:
    ideas, queries, phase = Ideas(), 0, 0  # a query is a call to one of the three agents, answered by a model or by the compiler
    while queries + 2 <= QUERIES:
        phase += 1
        async with run.span(f"phase-{phase}", f"Phase {phase}", "coder") as span:
            parents = pool(situation)
            shown = replace(situation, attempts=[parent for parent in parents if parent is not None])
            left = QUERIES - queries - 1
            wanted = await new_ideas(span, shown, roles, ideas, min(BRANCHES, left))
            if not wanted:
                span.skip("no further idea")
                return "there is no further idea"
            fixes = min(FIXES, left // len(wanted) - 1)
            written = await branches(run, situation, roles, span.path, wanted, parents, fixes)
            queries += 1 + sum(max(programs, 1) for programs in written)
            best = situation.best
            span.summary = f"{sum(written)} programs" + (f", the best {speed(best):.2f}x (candidate {best.number})" if best else ", none right")
        if reason := enough(run, situation) or plateau(situation, patience=2 * BRANCHES):
            return reason
        if not any(written):
            return "the last phase yielded no new program"
    return f"{queries} queries are used"


def pool(situation: Situation) -> list[Attempt | None]:
    """Returns the parents of a phase, fastest first. None stands for the reference."""
    ranked = sorted((a for a in situation.attempts if a.passed), key=lambda a: (-speed(a), a.number))
    entries = [(speed(a), a) for a in ranked] + [(REFERENCE, None)]
    entries.sort(key=lambda entry: -entry[0])
    return [attempt for _, attempt in entries[:PARENTS]]


async def branches(
    run: Engine, situation: Situation, roles: Roles, path: str, wanted: Sequence[Idea], parents: list[Attempt | None], fixes: int
) -> list[int]:
    """Runs all branches of a phase concurrently, cycling through the parents. Returns the number of programs that each branch wrote."""
    places, seen = asyncio.Semaphore(run.settings.workers), list(situation.attempts)

    async def one(number: int, idea: Idea, parent: Attempt | None) -> int:
        async with places:
            where = f"{path}/branch-{number}"
            said = f"candidate {parent.number}" if parent else "the reference"
            async with run.span(where, f"Idea {idea.number} on {said}", "coder") as span:
                own = await translate(run, situation, roles, where, idea, parent, seen=seen, repairs=fixes)
                if own and own[-1].passed:
                    span.summary = f"candidate {own[-1].number}: {speed(own[-1]):.2f}x"
                else:
                    span.fail("no program passed" if own else "no program")
            return len(own)

    return all_of(await run.parallel(*(one(n, idea, parents[(n - 1) % len(parents)]) for n, idea in enumerate(wanted, start=1))))
