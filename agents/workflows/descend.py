"""Searches without a language model. The compiler's moves, which change the structure, alternate with coordinate descent, which tunes the numbers,
until neither helps. Random samples (a storm) follow.

Taken from the papers (Ansor, arXiv 2006.06762; "Explore as a Storm, Exploit as a Raindrop", arXiv 2406.20037): a truncated exploration whose best
sample is the starting point of the descent. Our own additions: the exploration follows the compiler's moves against a measured bottleneck, and it
resumes from the tuned program because a different structure may be better with other numbers. Random sets of choices are sampled only after both the
moves and the descent have stalled.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from agents.roles.situation import Advice, Roles, Situation, required
from agents.run import Engine, Finish
from agents.stopping import GAIN, enough
from agents.workflows.attempting import advise, attempt_once, profiled, write_and_try
from agents.workflows.descending import MOST_MEASURED, descend_numbers, speed
from agents.workflows.solving import solve
from agents.workflows.translating import Ideas, new_ideas, realise

FRUITLESS = 8  # after this many moves in a row without a gain, an exploration ends
REPAIRS = 5
STORM = 8  # samples
STORMS = 3  # after this many storms in a row without a gain, the search ends


async def descend(run: Engine) -> Finish:
    return await solve(run, search, tune_last=False)


async def search(run: Engine, situation: Situation, roles: Roles) -> str:
    moves, turn, tuned_at = Moves(run, situation, roles), 0, 0.0
    while True:
        turn += 1
        reason = await moves.explore(f"explore-{turn}")
        if situation.best is not None and enough(run, situation) is None and speed(situation.best) >= tuned_at * GAIN:
            tuned_at = speed(situation.best)
            said = await descend_numbers(run, situation, roles, situation.best, MOST_MEASURED, f"descend-{turn}")
            reason = f"{reason} Then {said}."
            if enough(run, situation) is None and speed(situation.best) >= tuned_at * GAIN:
                continue
            tuned_at = speed(situation.best)
        storms = 0
        while enough(run, situation) is None and not await moves.storm(f"storm-{turn}.{storms + 1}"):
            storms += 1
            if storms == STORMS:
                return f"{reason} Then {storms} storms of {STORM} samples yielded nothing."
        if reached := enough(run, situation):
            return reached


@dataclass
class Moves:
    """Makes structural changes to the best program, one at a time. Each is chosen based on the diagnosis of the previous one."""

    run: Engine
    situation: Situation
    roles: Roles
    advice: Advice | None = None
    decision: int | None = None
    repairs: int = 0
    ideas: Ideas = field(default_factory=Ideas)

    async def explore(self, path: str) -> str:
        """Tries moves until none are left or FRUITLESS moves in a row yield no gain. Returns why it stopped. Half of the program budget is reserved
        for tuning numbers."""
        situation, tried, fruitless = self.situation, 0, 0
        allowed = self.run.settings.budget.candidates
        most = max(1, (allowed - len(situation.attempts)) // 2) if allowed is not None else 10**6
        async with self.run.span(path, "Explore structures", "coder") as span:
            if situation.best is not None:
                await self.judge(path)
            while (reason := self.ended(tried, fruitless, most)) is None:
                tried += 1
                before = max(map(speed, situation.attempts), default=0.0)
                parent = situation.attempts[-1] if self.advice and self.advice.route == "repair" else situation.best
                turn = await attempt_once(self.run, situation, self.roles, f"{path}/{tried}", parent, self.advice, self.decision)
                if turn is None:
                    reason = "No applicable optimization left; stopped early."
                    break
                self.advice, self.decision = turn.advice, turn.decision
                self.repairs = self.repairs + 1 if self.advice.route == "repair" else 0
                gained = turn.attempt is not None and turn.passed and speed(turn.attempt) >= before * GAIN
                fruitless = 0 if gained else fruitless + 1
            span.summary = reason[:500]
        return reason

    async def storm(self, path: str) -> bool:
        """Samples sets of several choices, starting from the best program or, if there is none, from the task. Returns whether any of them yielded a
        gain."""
        situation, roles = self.situation, self.roles
        best, before = situation.best, max(map(speed, situation.attempts), default=0.0)
        async with self.run.span(path, "Sample structures", "planner") as span:
            for idea in await new_ideas(span, situation, roles, self.ideas, STORM):
                written = partial(realise, situation=situation, roles=roles, idea=idea, parent=best)
                await write_and_try(self.run, situation, f"{path}/{idea.number}", best, written)
            gained = max(map(speed, situation.attempts), default=0.0) >= max(before * GAIN, 1e-9)
            span.summary = "a better one was found" if gained else "none was better"
        self.repairs = 0
        return gained

    async def judge(self, path: str) -> None:
        """Diagnoses the program found by the descent, because the previous advice was for a different program."""
        best = required(self.situation.best, "no program has passed")
        async with self.run.span(f"{path}/diagnosis", f"Diagnose candidate {best.number}", "verifier") as span:
            if best.profile is None:
                best.profile = await profiled(self.run, span, best)
            self.advice, self.decision = await advise(self.run, span, self.situation, self.roles, best)

    def ended(self, tried: int, fruitless: int, most: int) -> str | None:
        advice = self.advice
        if reached := enough(self.run, self.situation):
            return reached
        if self.repairs > REPAIRS:
            return f"{REPAIRS} repairs in a row did not help."
        if advice is not None and advice.route == "stop":
            return f"The exploration ends: {advice.reason}"
        if self.situation.best is not None and fruitless >= FRUITLESS:
            return f"The last {fruitless} changes of structure yielded nothing."
        if self.situation.best is not None and tried >= most:
            return f"The exploration ends after {tried} program{'s' if tried != 1 else ''}."
        return None
