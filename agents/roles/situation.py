"""The data that roles work on and exchange."""

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
    """Raised if none of a model's replies, including corrections, could be used. This counts as a failed attempt, and the next prompt shows its
    `reason`."""

    def __init__(self, reason: str):
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class Plan:
    """`payload` is the payload of `plan.proposed`; `data` is the planner's internal object, which the matching coder understands."""

    payload: dict[str, Any]
    says: tuple[str, ...]
    data: Any = None
    floor_ms: float | None = None
    bytes_min: int | None = None
    flops: int | None = None


@dataclass(frozen=True)
class Idea:
    """A strategy for the whole program, independent of code. Populations and idea lists consist of these. `data` is the author's internal form of the
    idea."""

    title: str
    text: str  # a paragraph that says what to do, in what order, and why it should pay off
    strategies: tuple[str, ...] = ()  # catalogue names, if the idea names any
    expected: float | None = None  # speedup over eager
    parents: tuple[int, ...] = ()  # numbers of the ideas that it was derived from
    number: int = 0  # number within the run, assigned by the workflow
    data: Any = None


@dataclass(frozen=True)
class Edit:
    """A program and where it came from. `options` is the coder's internal state for it."""

    source: str
    title: str
    changes: str  # a sentence
    says: tuple[str, ...]
    strategy: str = ""
    step: str = ""
    options: Any = None
    idea: Idea | None = None  # the idea that the program implements
    author: str = ""  # the profile and its model; "" means the workflow itself
    way: int | None = None  # the branch that it belongs to, in a workflow that explores several branches in parallel


NOT_JUDGED = "It has to be right before it can be faster"  # the reason for a repair that no model has judged


@dataclass(frozen=True)
class Advice:
    """The Verifier's answer to an attempt: what limits it, what to do about that, and the expected gain."""

    diagnosis: Diagnosis
    route: str  # repair, optimise, next-step, re-plan, stop
    reason: str
    method: str | None = None  # catalogue strategy
    expected: float | None = None  # expected speedup over the parent
    move: Any = None  # what the coder should carry out, in the coder's own terms
    documents: tuple[Passage, ...] = ()  # passages cited by the diagnosis
    base: Diagnosis | None = None  # diagnosis of the program to change next, if that is not the program that was diagnosed
    groups: Mapping[str, float] = field(default_factory=dict)  # time per call, in milliseconds, in the kernels of each plan group, if known


@dataclass(frozen=True)
class Knob:
    """A tunable number in a finished program: block size, elements per thread, unroll factor, tile size."""

    name: str
    values: tuple[int, ...]  # possible values, in order
    value: int  # current value


def required(value: T | None, otherwise: str) -> T:
    """Return the value. If there is none, raise `LookupError` with that sentence."""
    if value is None:
        raise LookupError(otherwise)
    return value


@dataclass(frozen=True)
class Against:
    """A program from another line of descent, and the speedup over it, from a measurement that timed the two alternately."""

    attempt: Attempt
    speedup: Interval


@dataclass
class Attempt:
    number: int
    parent: int | None
    edit: Edit
    report: Report | None = None
    profile: Profile | None = None
    realises: int | None = None  # seq of the decision that requested this program
    expected: float | None = None  # speedup over the parent that the advice promised
    base: Attempt | None = None  # the nearest ancestor that passed; the verdict timed both alternately
    against: Against | None = None  # an earlier program from another line of descent, timed together with this one; if set, it determines the level

    @property
    def passed(self) -> bool:
        return self.report is not None and self.report.status == "passed" and self.report.speedup is not None

    @property
    def verdict(self) -> Report:
        """The report. Raises `LookupError` if there is none yet."""
        return required(self.report, f"candidate {self.number} has not been verified")

    @property
    def speedup(self) -> Interval:
        """The speedup over eager. Raises `LookupError` if the program did not pass."""
        return required(self.report.speedup if self.report is not None and self.passed else None, f"candidate {self.number} did not pass")

    @property
    def gain(self) -> Interval | None:
        """The speedup over `base`, from one measurement that timed both alternately, or None if there was no such measurement. Two ratios to eager
        measured at different times cannot be combined into a gain."""
        timing = self.report.timing if self.report is not None and self.passed else None
        rival = timing.rival if timing is not None else None
        return rival.speedup if rival is not None and self.base is not None else None

    @property
    def level(self) -> float:
        """The program's speed, for comparison with other programs: the first program's speedup over eager times the gains since then, or 0 if it is
        not correct. If a program was measured together with one of another line, its level is that program's level times the measured ratio."""
        if self.against is not None:
            return self.against.attempt.level * self.against.speedup.ratio
        if self.base is not None and self.gain is not None:
            return self.base.level * self.gain.ratio
        return self.speedup.ratio if self.passed else 0.0

    @property
    def score(self) -> float:
        """The same as `level`, but starting from the lower bound of the first program's speedup."""
        if self.against is not None:
            return self.against.attempt.score * self.against.speedup.ratio
        if self.base is not None and self.gain is not None:
            return self.base.score * self.gain.ratio
        return self.speedup.low if self.passed else 0.0


def beside(parent: Attempt | None) -> Attempt | None:
    """Return the program that a change to `parent` is timed against: the parent itself if it passed, or else the program that it was derived from."""
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
    step: dict[str, Any] | None = None  # the current step of the plan; None: work on the program as a whole
    refusals: list[str] = field(default_factory=list)  # reasons why replies since the last program were unusable
    replans_left: int = 0  # number of additional times the workflow would ask for a new plan
    outcome: str = ""  # reason for a new plan
    tuned: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # kernel numbers from earlier runs, keyed by the kernel's fingerprint
    records: Mapping[str, Record] = field(default_factory=dict)  # strategy records from earlier runs on this kind of device
    orders: Orders = field(default_factory=Orders)  # people's orders to the built-in roles

    @property
    def planned(self) -> Plan:
        """The plan. Raises `LookupError` if there is none yet."""
        return required(self.plan, "there is no plan yet")

    @property
    def captured(self) -> Capture:
        """The task's graph. Raises `LookupError` if there is none yet."""
        return required(self.capture, "the task has not been captured yet")

    @property
    def best(self) -> Attempt | None:
        return max((a for a in self.attempts if a.passed), key=self.rank, default=None)

    def rank(self, attempt: Attempt) -> tuple[bool, float]:
        """Return the sort key for ranking programs that passed; higher is better."""
        own = self.settings.winner == "fastest" or attempt.verdict.program_class in ("custom", "mixed")
        return own, attempt.score


class Planner(Protocol):
    name: str

    async def plan(self, span: Span, situation: Situation) -> Plan:
        """Return the first plan. If `situation.plan` and attempts exist, return a new plan that takes them into account."""

    async def ideas(self, span: Span, situation: Situation, count: int, known: Sequence[Idea]) -> list[Idea]:
        """Return up to `count` ideas that differ from the known ones and from each other; the list is shorter or empty if there are no more."""

    async def cross(self, span: Span, situation: Situation, first: Idea, second: Idea) -> Idea:
        """Return one idea derived from two by crossing over strategies, not code."""

    async def align(self, span: Span, situation: Situation, idea: Idea, attempt: Attempt) -> Idea:
        """Return the idea, rewritten to describe what the surviving program does."""

    async def edit_tree(self, span: Span, situation: Situation, view: View) -> Edited:
        """Return the decision tree with the changes that this author would now make."""


class Coder(Protocol):
    name: str

    async def write(self, span: Span, situation: Situation, parent: Attempt | None, advice: Advice | None) -> Edit | None:
        """Return the first program (if there is no parent) or the parent with the advised changes. Return None if this Coder has nothing further to
        offer."""

    async def realise(self, span: Span, situation: Situation, idea: Idea, parent: Attempt | None) -> Edit | None:
        """Return the idea as a program, starting from the parent's if there is one."""

    def knobs(self, situation: Situation, attempt: Attempt) -> list[Knob]:
        """Return the numbers in the attempt's program that can be changed without affecting its results."""

    async def tune(self, span: Span, situation: Situation, attempt: Attempt, values: Mapping[str, int]) -> Edit | None:
        """Return the same program with other knob values, or None if that is not possible."""


class VerifierRole(Protocol):
    name: str

    async def advise(self, span: Span, situation: Situation, attempt: Attempt) -> Advice:
        """Diagnose `attempt` and choose a route: repair it, improve the best attempt so far, or stop."""

    def by_rules(self, situation: Situation, attempt: Attempt) -> Advice:
        """Return the same kind of advice from rules alone, immediately, without calling a model or writing to the trace."""


@dataclass(frozen=True)
class Roles:
    planner: Planner
    coder: Coder
    verifier: VerifierRole
