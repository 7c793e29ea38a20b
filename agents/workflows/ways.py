"""One of a workflow's parallel branches ("ways"): its state, its next step, and its last gain."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from agents.roles.situation import Advice, Attempt, Idea, Situation
from agents.stopping import GAIN

REPAIRS = 3  # repairs in a row


@dataclass
class Way:
    """`view`: the run as seen by the roles of this branch, which is its own line of programs and other branches' attempts on the program from which
    it continues."""

    number: int
    view: Situation
    own: Idea | None = None  # the idea that the branch started with
    idea: Idea | None = None  # the idea for its next program; None: follow the advice, or the plan if there is no program yet
    advice: Advice | None = None
    decision: int | None = None  # seq of the decision behind this advice
    failed: Attempt | None = None  # the program to repair
    repairs: int = 0  # repairs in a row
    lost: int = 0  # programs in a row without a gain
    dry: bool = False  # the coder has nothing left to write here
    moved: bool = False  # it continues from another branch's program and has not gained anything since

    @property
    def best(self) -> Attempt | None:
        return self.view.best

    @property
    def title(self) -> str:
        if self.failed is not None:
            does = f"repair candidate {self.failed.number}"
        elif self.idea is not None:
            does = self.idea.title
        else:
            does = self.advice.method if self.advice is not None and self.advice.method else "write a program"
        return f"Branch {self.number}: {does}"[:200]

    def take(self, attempt: Attempt) -> None:
        """Updates the state with a measured program of this branch."""
        before = self.best
        self.view.attempts.append(attempt)
        self.idea = self.advice = self.decision = None
        if attempt.passed:
            gained = before is None or attempt.level >= before.level * GAIN
            self.failed, self.repairs = None, 0
            self.lost = 0 if gained else self.lost + 1
            self.moved = self.moved and not gained
            return
        self.repairs += 1
        if attempt.verdict.status == "inconclusive" or self.repairs > REPAIRS:  # the program may not be wrong, or the repairs did not help
            self.lose()
        else:
            self.failed = attempt

    def learn(self, other: Attempt) -> None:
        """Records that another branch's program is no better than this branch's, so that the same change is not tried here."""
        known = other.report is not None and other not in self.view.attempts
        if known and (not other.passed or (self.best is not None and self.view.rank(other) <= self.view.rank(self.best))):
            self.view.attempts.append(other)

    def lose(self) -> None:
        """Records a turn that produced no program to continue from."""
        self.idea = self.advice = self.decision = self.failed = None
        self.repairs, self.lost = 0, self.lost + 1

    def adopt(self, attempts: list[Attempt], idea: Idea | None) -> None:
        """Continues from the best of `attempts`, which are another branch's programs."""
        self.view = replace(self.view, attempts=attempts, refusals=[])
        self.idea, self.advice, self.decision, self.failed, self.repairs, self.moved = idea, None, None, None, 0, True


class Turns:
    """Processes branches, which write concurrently, in numerical order, so that programs get the same numbers regardless of which branch finishes
    first."""

    def __init__(self, ways: list[Way]):
        self._over = {way.number: asyncio.Event() for way in ways}

    async def of(self, way: Way) -> None:
        """Waits until all earlier branches have had their turns."""
        for number, over in self._over.items():
            if number < way.number:
                await over.wait()

    def end(self, way: Way) -> None:
        self._over[way.number].set()


def line_of(situation: Situation, program: Attempt) -> list[Attempt]:
    """Returns the program, its ancestors, and the attempts to improve it."""
    line = {program.number, *ancestors_of(situation, program)}
    return [attempt for attempt in situation.attempts if attempt.number in line or attempt.parent == program.number]


def ancestors_of(situation: Situation, program: Attempt) -> set[int]:
    """Returns the numbers of the program's ancestors, excluding its own number."""
    parents = {attempt.number: attempt.parent for attempt in situation.attempts}
    found: set[int] = set()
    at = program.parent
    while at is not None and at not in found:
        found.add(at)
        at = parents.get(at)
    return found


def measured_beside(attempt: Attempt, other: Attempt) -> bool:
    """Returns whether a chain of pairwise alternating measurements links the two programs, without going through a ratio to eager."""
    current: Attempt | None = attempt
    while current is not None and current is not other:
        before = current.base if current.gain is not None else None
        current = current.against.attempt if current.against is not None else before
    return current is other
