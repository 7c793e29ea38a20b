"""What the roles know and what they hand over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from agents.diagnosis import Diagnosis
from agents.orders import Orders
from agents.ports import Passage
from agents.settings import Settings
from agents.span import Span
from agents.strategies.ledger import Record
from verifier.graph import Capture
from verifier.jobs import Profile
from verifier.report import Interval, Report
from verifier.task import Admission

if TYPE_CHECKING:
    from agents.decisions.script import Edited
    from agents.decisions.view import View

T = TypeVar("T")


class Unusable(Exception):
    """A model's replies held nothing that could be used, its corrections included: a failed attempt, whose `reason` the next prompt shows."""

    def __init__(self, reason: str):
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class Plan:
    """`payload` is that of `plan.proposed`; `data` is the planner's own object that its coder understands."""

    payload: dict[str, Any]
    says: tuple[str, ...]
    data: Any = None
    floor_ms: float | None = None
    bytes_min: int | None = None
    flops: int | None = None


@dataclass(frozen=True)
class Idea:
    """A strategy for the whole program, apart from code: what populations and idea lists are made of. `data` is the author's own form of it."""

    title: str
    text: str  # a paragraph: what to do, in which order, and why it should pay
    strategies: tuple[str, ...] = ()  # of the catalogue, as far as it names them
    expected: float | None = None  # speedup over eager
    parents: tuple[int, ...] = ()  # numbers of the ideas it was made from
    number: int = 0  # within the run; given by the workflow
    data: Any = None


@dataclass(frozen=True)
class Edit:
    """A program and how it came to be. `options` is the coder's own state of it."""

    source: str
    title: str
    changes: str  # a sentence
    says: tuple[str, ...]
    strategy: str = ""
    step: str = ""
    options: Any = None
    idea: Idea | None = None  # that it realises
    author: str = ""  # the profile and its model; "": nobody but the workflow
    way: int | None = None  # that it belongs to, where a workflow goes several at once


@dataclass(frozen=True)
class Advice:
    """The Verifier's answer to an attempt: what holds it back, what to do about it, what that should bring."""

    diagnosis: Diagnosis
    route: str  # repair, optimise, next-step, re-plan, stop
    reason: str
    method: str | None = None  # a strategy
    expected: float | None = None  # speedup over the parent
    move: Any = None  # what the coder is to carry out, in its own terms
    documents: tuple[Passage, ...] = ()  # that the diagnosis used
    base: Diagnosis | None = None  # of the program that is changed next, where that is not the one that was diagnosed
    groups: Mapping[str, float] = field(default_factory=dict)  # of the plan: milliseconds a call that each group's kernels took, as far as known


@dataclass(frozen=True)
class Knob:
    """A number of a finished program: block size, elements a thread, unroll, tile."""

    name: str
    values: tuple[int, ...]  # in order
    value: int  # now


def required(value: T | None, otherwise: str) -> T:
    """The value; raises `LookupError` with that sentence where there is none."""
    if value is None:
        raise LookupError(otherwise)
    return value


@dataclass(frozen=True)
class Against:
    """A program of another line, and the speedup over it: one measurement timed both in turn."""

    attempt: Attempt
    speedup: Interval


@dataclass
class Attempt:
    number: int
    parent: int | None
    edit: Edit
    report: Report | None = None
    profile: Profile | None = None
    realises: int | None = None  # seq of the decision that asked for it
    expected: float | None = None  # speedup over the parent that the advice behind it promised
    base: Attempt | None = None  # the nearest ancestor that passed: its verdict timed both in turn
    against: Against | None = None  # an earlier program of another line that it was measured beside; where it is known, the level follows from it

    @property
    def passed(self) -> bool:
        return self.report is not None and self.report.status == "passed" and self.report.speedup is not None

    @property
    def verdict(self) -> Report:
        """The report; raises `LookupError` before there is one."""
        return required(self.report, f"candidate {self.number} has not been verified")

    @property
    def speedup(self) -> Interval:
        """Over eager; raises `LookupError` where it did not pass."""
        return required(self.report.speedup if self.report is not None and self.passed else None, f"candidate {self.number} did not pass")

    @property
    def gain(self) -> Interval | None:
        """Over `base`, both timed in turn by one measurement; null where they were not. Two ratios to eager, each of its own time, are no gain."""
        timing = self.report.timing if self.report is not None and self.passed else None
        rival = timing.rival if timing is not None else None
        return rival.speedup if rival is not None and self.base is not None else None

    @property
    def level(self) -> float:
        """How fast it is, to hold against other programs: the speedup over eager of a first program, times the gains from there; 0 where it is not
        correct. A program that was measured beside one of another line stands at that one's level times what was measured."""
        if self.against is not None:
            return self.against.attempt.level * self.against.speedup.ratio
        if self.base is not None and self.gain is not None:
            return self.base.level * self.gain.ratio
        return self.speedup.ratio if self.passed else 0.0

    @property
    def score(self) -> float:
        """The same from the lower bound of the first program's speedup."""
        if self.against is not None:
            return self.against.attempt.score * self.against.speedup.ratio
        if self.base is not None and self.gain is not None:
            return self.base.score * self.gain.ratio
        return self.speedup.low if self.passed else 0.0


def beside(parent: Attempt | None) -> Attempt | None:
    """What a change of `parent` is timed beside: itself where it passed, else what it was made from."""
    return parent if parent is None or parent.passed else parent.base


@dataclass
class Situation:
    task_source: str
    task_name: str
    settings: Settings
    admission: Admission | None = None
    capture: Capture | None = None
    reference: Profile | None = None
    plan: Plan | None = None
    attempts: list[Attempt] = field(default_factory=list)
    step: dict[str, Any] | None = None  # of the plan, that is worked on now; null: the program as a whole
    refusals: list[str] = field(default_factory=list)  # why replies could not be used, since the last program
    replans_left: int = 0  # how often the workflow would still ask for a new plan
    outcome: str = ""  # why a new plan is asked for
    tuned: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # numbers of kernels, by fingerprint, from earlier runs
    records: Mapping[str, Record] = field(default_factory=dict)  # of strategies on this kind of device, from earlier runs
    orders: Orders = field(default_factory=Orders)  # of people to the built-in roles

    @property
    def planned(self) -> Plan:
        """The plan; raises `LookupError` before there is one."""
        return required(self.plan, "there is no plan yet")

    @property
    def captured(self) -> Capture:
        """The task's graph; raises `LookupError` before there is one."""
        return required(self.capture, "the task has not been captured yet")

    @property
    def best(self) -> Attempt | None:
        return max((a for a in self.attempts if a.passed), key=self.rank, default=None)

    def rank(self, attempt: Attempt) -> tuple[bool, float]:
        """What makes one program that passed better than another."""
        own = self.settings.winner == "fastest" or attempt.verdict.program_class in ("custom", "mixed")
        return own, attempt.score


class Planner(Protocol):
    name: str

    async def plan(self, span: Span, situation: Situation) -> Plan:
        """The first plan, or, where `situation.plan` and attempts are there, a new one that learns from them."""

    async def ideas(self, span: Span, situation: Situation, count: int, known: Sequence[Idea]) -> list[Idea]:
        """Up to `count` ideas that differ from those known and from each other; fewer, or none, where there are no more."""

    async def cross(self, span: Span, situation: Situation, first: Idea, second: Idea) -> Idea:
        """One idea out of two: crossover of strategies, not of code."""

    async def align(self, span: Span, situation: Situation, idea: Idea, attempt: Attempt) -> Idea:
        """The idea rewritten so that it says what the surviving program does."""

    async def edit_tree(self, span: Span, situation: Situation, view: View) -> Edited:
        """The tree of decisions as this author would have it now."""


class Coder(Protocol):
    name: str

    async def write(self, span: Span, situation: Situation, parent: Attempt | None, advice: Advice | None) -> Edit | None:
        """The first program (no parent), or the parent changed as the advice asks; null where it has no answer left."""

    async def realise(self, span: Span, situation: Situation, idea: Idea, parent: Attempt | None) -> Edit | None:
        """The idea as a program, starting from the parent's where there is one."""

    def knobs(self, situation: Situation, attempt: Attempt) -> list[Knob]:
        """Numbers of the attempt's program that can be changed without changing what it does."""

    async def tune(self, span: Span, situation: Situation, attempt: Attempt, values: Mapping[str, int]) -> Edit | None:
        """The same program with knobs at other values; null where that is not possible."""


class Verifier(Protocol):
    name: str

    async def advise(self, span: Span, situation: Situation, attempt: Attempt) -> Advice:
        """Diagnose `attempt` and route: repair it, or improve the best attempt so far, or stop."""

    def by_rules(self, situation: Situation, attempt: Attempt) -> Advice:
        """The same by rules alone, at once: nobody is asked, and nothing is written into the trace."""


@dataclass(frozen=True)
class Roles:
    planner: Planner
    coder: Coder
    verifier: Verifier
