"""One way of several that a workflow goes at once: where it stands, what it does next, when it gained last."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from agents.roles.situation import Advice, Attempt, Idea, Situation
from agents.stopping import GAIN

REPAIRS = 3  # in a row


@dataclass
class Way:
    """`view`: the run as the roles are shown it here: this way's line, with what others tried on the program that it goes on from."""

    number: int
    view: Situation
    own: Idea | None = None  # that it began with
    idea: Idea | None = None  # that its next program realises; null: the advice, or the plan where there is no program yet
    advice: Advice | None = None
    decision: int | None = None  # seq of the decision that gave the advice
    failed: Attempt | None = None  # to be repaired
    repairs: int = 0  # in a row
    lost: int = 0  # programs in a row without a gain
    dry: bool = False  # the coder has nothing to write here
    moved: bool = False  # goes on from another way's program, and has not gained since

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
        return f"Way {self.number}: {does}"[:200]

    def take(self, attempt: Attempt) -> None:
        """A program of this way that was measured."""
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
        if attempt.verdict.status == "inconclusive" or self.repairs > REPAIRS:  # nothing is known to be wrong with it, or repairs do not help
            self.lose()
        else:
            self.failed = attempt

    def learn(self, other: Attempt) -> None:
        """What another way's program came to, where that is no better than this way's: it need not be tried here."""
        known = other.report is not None and other not in self.view.attempts
        if known and (not other.passed or (self.best is not None and self.view.rank(other) <= self.view.rank(self.best))):
            self.view.attempts.append(other)

    def lose(self) -> None:
        """A turn that brought nothing to go on from."""
        self.idea = self.advice = self.decision = self.failed = None
        self.repairs, self.lost = 0, self.lost + 1

    def adopt(self, attempts: list[Attempt], idea: Idea | None) -> None:
        """Go on from the best of `attempts`, another way's line."""
        self.view = replace(self.view, attempts=attempts, refusals=[])
        self.idea, self.advice, self.decision, self.failed, self.repairs, self.moved = idea, None, None, None, 0, True


class Turns:
    """Ways write side by side and are taken in the order of their numbers: whoever answers first, programs get the same numbers."""

    def __init__(self, ways: list[Way]):
        self._over = {way.number: asyncio.Event() for way in ways}

    async def of(self, way: Way) -> None:
        """Returns once all ways before this one have had theirs."""
        for number, over in self._over.items():
            if number < way.number:
                await over.wait()

    def end(self, way: Way) -> None:
        self._over[way.number].set()


def line_of(situation: Situation, program: Attempt) -> list[Attempt]:
    """The program with its ancestors, and what was tried on it."""
    line = {program.number, *ancestors_of(situation, program)}
    return [attempt for attempt in situation.attempts if attempt.number in line or attempt.parent == program.number]


def ancestors_of(situation: Situation, program: Attempt) -> set[int]:
    """Numbers of the programs that it was made from, without its own."""
    parents = {attempt.number: attempt.parent for attempt in situation.attempts}
    found: set[int] = set()
    at = program.parent
    while at is not None and at not in found:
        found.add(at)
        at = parents.get(at)
    return found


def measured_beside(attempt: Attempt, other: Attempt) -> bool:
    """Whether measurements that timed both sides in turn lead from one program to the other, without a ratio to eager between."""
    current: Attempt | None = attempt
    while current is not None and current is not other:
        before = current.base if current.gain is not None else None
        current = current.against.attempt if current.against is not None else before
    return current is other
