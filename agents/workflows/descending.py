"""Coordinate descent over the numeric parameters of a finished program.

It follows Droplet Search, which "Explore as a Storm, Exploit as a Raindrop" (arXiv 2406.20037) runs after a short exploration. Taken from the paper:
start at the best known program, try its neighbours, move to a better one, and look further away before giving up. Our own additions: only one number
changes at a time, the search continues in a direction that yielded a gain, and a gain has to exceed the noise.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from math import prod

from agents.budget import OutOfBudget
from agents.roles.obeying import heed
from agents.roles.situation import Attempt, Knob, Roles, Situation, Unusable
from agents.run import Engine
from agents.stopping import enough
from agents.workflows.attempting import try_edit
from agents.workflows.measuring import verdict

GAIN = 1.005  # smaller gains count as noise
SHARE = 3  # at most one in every three combinations is measured
MOST_MEASURED = 48
MOST_LAST = 8  # limit if another workflow runs the descent at its end

Measure = Callable[[dict[str, int]], Awaitable[float]]


async def descend(knobs: Sequence[Knob], score: float, measure: Measure, limit: int) -> dict[str, int]:
    """Returns the best values found with at most `limit` measurements. The descent starts from the knobs' current values, whose score is `score`
    (higher is better; 0 means incorrect).

    `measure` is called once per combination. If no neighbour one step away is better, those two steps away are tried, and so on.
    """
    now = {knob.name: knob.values.index(knob.value) for knob in knobs}
    known = {tuple(now.values()): score}
    best, step, asked = score, 1, 0
    turns = [knob for knob in knobs if len(knob.values) > 1]
    furthest = max((len(knob.values) for knob in turns), default=1)
    while step < furthest:
        gained = False
        for knob in turns:
            for way in (step, -step):
                while True:
                    place = now[knob.name] + way
                    if not 0 <= place < len(knob.values):
                        break
                    there = {**now, knob.name: place}
                    if tuple(there.values()) not in known:
                        if asked >= limit:
                            return values_of(knobs, now)
                        asked += 1
                        known[tuple(there.values())] = await measure(values_of(knobs, there))
                    found = known[tuple(there.values())]
                    if found < best * GAIN or found <= 0:
                        break
                    now, best, gained = there, found, True
        step = 1 if gained and step > 1 else step if gained else step + 1
    return values_of(knobs, now)


def values_of(knobs: Sequence[Knob], places: dict[str, int]) -> dict[str, int]:
    return {knob.name: knob.values[places[knob.name]] for knob in knobs}


async def descend_numbers(run: Engine, situation: Situation, roles: Roles, start: Attempt, most: int, path: str = "descend") -> str:
    """Tunes the numeric parameters of `start` and adds the resulting programs to the situation's attempts. Returns the result as a sentence."""
    knobs = list(roles.coder.knobs(situation, start))
    combinations = prod(len(knob.values) for knob in knobs)
    if combinations < 2:
        return f"candidate {start.number} has no numbers to change"
    limit = min(most, max(combinations // SHARE, 2))
    asked = 0
    async with run.span(path, f"Tune the numbers of candidate {start.number}", "coder") as span:
        what = ", ".join(f"{k.name} ({len(k.values)} values)" for k in knobs)
        await span.say("coder", f"Coordinate descent over {what}: {combinations} combinations; at most {limit} are measured.")

        async def measure(values: dict[str, int]) -> float:
            nonlocal asked
            asked += 1
            changed = {k.name: values[k.name] for k in knobs if values[k.name] != k.value}
            return await tried(run, situation, roles, f"{path}/{asked}", start, changed)

        await descend(knobs, speed(start), measure, limit)
        best = max(situation.attempts, key=speed)
        said = f"{asked} of {combinations} combinations measured; candidate {best.number} is the fastest"
        span.summary = f"{said}, {speed(best) / speed(start):.2f}x candidate {start.number}"
    return span.summary


async def tried(run: Engine, situation: Situation, roles: Roles, path: str, start: Attempt, changed: dict[str, int]) -> float:
    """Returns the speed of `start` with other numbers, or 0 if the resulting program is not correct. Identical programs are not measured twice."""
    async with run.span(path, ", ".join(f"{name} = {value}" for name, value in changed.items()) or "The numbers as they were", "coder") as span:
        await heed(span, situation, "coder")
        try:
            edit = await roles.coder.tune(span, situation, start, changed)
        except Unusable as refused:
            edit = None
            span.fail(f"no usable program: {refused.reason}"[:500])
        if edit is None:
            span.skip(span.summary or "not a program of these numbers")
            return 0.0
        same = next((a for a in situation.attempts if a.edit.source == edit.source), None)
        if same is not None:
            span.skip(f"the same program as candidate {same.number}")
            return speed(same)
        attempt = await try_edit(run, span, situation, edit, start, profile=False)
        span.summary = span.summary or verdict(attempt.verdict)
    return speed(attempt)


async def descend_last(run: Engine, situation: Situation, roles: Roles, reason: str) -> str:
    """Runs a short final descent from the best program, for workflows that ended on their own with budget left.

    Returns the search's reason for stopping with the result of the descent appended. A search whose final descent runs out of budget does not itself
    count as out of budget.
    """
    best = situation.best
    if best is None or enough(run, situation) is not None:
        return reason
    try:
        said = await descend_numbers(run, situation, roles, best, MOST_LAST)
    except OutOfBudget as error:
        said = f"tuning numbers ended early, as {error}"
    return f"{reason.rstrip('.')}. Then {said}."


def speed(attempt: Attempt) -> float:
    """Returns a figure that is larger for a faster program and 0 for an incorrect one."""
    return attempt.level
