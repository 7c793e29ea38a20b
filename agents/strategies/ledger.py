"""The expected and realised gains of every strategy that was tried, as a projection of a run's events.

A candidate counts for the strategy that it names; a first program counts for all of its strategies together. The realised gain is measured against
the nearest ancestor that passed, timed alternately with it (`gain` in its verdict). For a first program, it is measured against eager. Two ratios to
eager taken at different times cannot be compared, because they also differ by the drift of eager. The expected gain is recorded in the decision that
requested the candidate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import exp, log
from statistics import geometric_mean
from typing import Literal, Protocol

from pydantic import BaseModel

from agents.events import Event, Projection
from agents.payloads import (
    CandidateProposed,
    DecisionMade,
    DiagnosisMade,
    EffectCompleted,
    PlanEdited,
    PlanPayload,
    PlanProposed,
    RunFinished,
    RunStarted,
    VerificationFinished,
)
from agents.strategies.combined import parts
from verifier.report import Interval

GAIN = 1.02  # a smaller realised gain is within the noise of the quick tier

Outcome = Literal["gained", "no gain", "not right", "not measured"]


class Entry(BaseModel):
    """One application of a strategy."""

    run: str
    task: str = ""  # sha
    task_name: str = ""
    device: str = ""  # "cpu", "cuda"
    precision: str = ""
    candidate: int
    strategy: str
    step: str = ""
    operators: list[str] = []
    title: str = ""
    changes: str = ""
    program: str = ""  # sha of the program's artefact
    status: str = ""  # status of the verdict in the quick tier
    expected: float | None = None
    realised: float | None = None
    low: float | None = None  # lower end of the realised gain's 95 % interval
    high: float | None = None
    bottleneck: str = ""  # bottleneck of the parent program, from its diagnosis
    before: str = ""  # sha of the parent program's artefact
    offered: bool = False  # whether an earlier request in this run showed what past runs gained with the strategy
    speedup: float | None = None  # speedup over eager
    outcome: Outcome = "not measured"
    confirmed: bool = False  # whether the run's result, confirmed in the full tier, is this program or was derived from it


@dataclass(frozen=True)
class Score:
    """A strategy's record over a set of entries."""

    tried: int
    passed: int
    gained: int
    mean: float | None  # geometric mean of the realised gains of the programs that passed
    expected: float | None  # geometric mean of the expected gains of the same entries, if they were recorded

    @property
    def win_rate(self) -> float | None:
        return self.gained / self.tried if self.tried else None


def entries(events: Iterable[Event]) -> list[Entry]:
    """Returns one entry for each candidate that has a strategy and a verdict, in the order of proposal."""
    reading = _Reading()
    for event in events:
        READ.take(reading, event)
    return reading.entries()


class Tried(Protocol):
    """The data that a score needs about one use: an entry of a ledger, or a database row."""

    @property
    def outcome(self) -> str: ...
    @property
    def realised(self) -> float | None: ...
    @property
    def expected(self) -> float | None: ...


def score(of: Iterable[Tried]) -> Score:
    measured = [e for e in of if e.outcome != "not measured"]
    gains = [e.realised for e in measured if e.realised]
    hoped = [e.expected for e in measured if e.realised and e.expected]
    return Score(
        tried=len(measured),
        passed=len(gains),
        gained=sum(e.outcome == "gained" for e in measured),
        mean=geometric_mean(gains) if gains else None,
        expected=geometric_mean(hoped) if hoped else None,
    )


PRIOR = 2.0  # number of tries that kept their promises exactly, credited to every strategy at the start
MOST_KEPT = 1.5  # upper limit on the share of a promise that a single lucky try is credited with


class Record(BaseModel):
    """How well a strategy has kept its promises on one kind of device: the sum, over its tries, of the logarithm of the realised gain divided by that
    of the expected gain."""

    tried: int = 0
    kept: float = 0.0

    @property
    def trust(self) -> float:
        """Returns 1 if gains were as promised, and 0 if no gains were realised."""
        return (self.kept + PRIOR) / (self.tried + PRIOR)

    def likely(self, expected: float) -> float:
        """Returns the probable gain for a given promise."""
        return exp(log(expected) * self.trust) if expected > 1 else expected

    def plus(self, other: Record) -> Record:
        return Record(tried=self.tried + other.tried, kept=self.kept + other.kept)


def kept(expected: float | None, realised: float | None) -> float:
    """Returns the share of its promise that one try kept: 1 if the gain was as promised, and 0 if there was no gain or the program was incorrect.
    If there was no promise, returns 1 if the try gained anything at all."""
    if not realised or realised <= 1:
        return 0.0
    if expected is None or expected <= 1:
        return float(realised >= GAIN)
    return min(log(realised) / log(expected), MOST_KEPT)


def records(of: Iterable[Entry]) -> dict[str, Record]:
    """Returns the records, keyed by strategy, over entries from one kind of device. Unmeasured entries are ignored."""
    found: dict[str, Record] = {}
    for entry in of:
        if entry.outcome != "not measured":
            found[entry.strategy] = found.get(entry.strategy, Record()).plus(Record(tried=1, kept=kept(entry.expected, entry.realised)))
    return found


def joined(*several: Mapping[str, Record]) -> dict[str, Record]:
    total: dict[str, Record] = {}
    for one in several:
        for strategy, record in one.items():
            total[strategy] = total.get(strategy, Record()).plus(record)
    return total


READ: Projection[_Reading, Event] = Projection()


class _Reading:
    """The parts of a trace that are needed to create entries."""

    def __init__(self) -> None:
        self.run = ""
        self.started = RunStarted()
        self.operators: dict[str, list[str]] = {}
        self.proposed: dict[int, tuple[int, CandidateProposed]] = {}  # candidates, each with the seq of its event
        self.verdicts: dict[int, VerificationFinished] = {}
        self.expected: dict[int, float | None] = {}
        self.decisions: dict[int, DecisionMade] = {}
        self.in_span: dict[str, int] = {}  # candidates, keyed by the span that proposed them
        self.best: int | None = None
        self.held = False
        self.bottlenecks: dict[int, str] = {}  # bottlenecks, keyed by candidate
        self.offers: list[tuple[int, str]] = []  # (seq, the strategy that was offered from that event on)

    @READ.on(RunStarted)
    def _started(self, event: Event, p: RunStarted) -> None:
        self.run, self.started = event.run, p

    @READ.on(PlanProposed, PlanEdited)
    def _planned(self, event: Event, p: PlanPayload) -> None:
        self.operators.update({step.id: step.operators for step in p.steps})

    @READ.on(CandidateProposed)
    def _proposed(self, event: Event, p: CandidateProposed) -> None:
        self.proposed[p.candidate] = event.seq, p
        self.in_span[event.span] = p.candidate

    @READ.on(VerificationFinished)
    def _verified(self, event: Event, p: VerificationFinished) -> None:
        if p.job == "verify" and p.candidate is not None and (p.tier or "quick") == "quick":
            self.verdicts[p.candidate] = p

    @READ.on(DiagnosisMade)
    def _diagnosed(self, event: Event, p: DiagnosisMade) -> None:
        self.bottlenecks[p.candidate or 0] = p.bottleneck

    @READ.on(EffectCompleted)
    def _recalled(self, event: Event, p: EffectCompleted) -> None:
        if p.name == "inspirations":
            self.offers += [(event.seq, str(row.get("strategy") or "")) for row in p.value or []]

    @READ.on(DecisionMade)
    def _decided(self, event: Event, p: DecisionMade) -> None:
        if p.of is None:
            self.decisions[event.seq] = p
        elif event.span in self.in_span:
            self.expected[self.in_span[event.span]] = p.expected or self.decisions.get(p.of, p).expected

    @READ.on(RunFinished)
    def _finished(self, event: Event, p: RunFinished) -> None:
        self.best, self.held = p.best, p.outcome in ("improved", "matched") and p.speedup is not None

    def entries(self) -> list[Entry]:
        winners = self._line(self.best) if self.held else set()
        return [self._entry(number, winners) for number, (_, p) in self.proposed.items() if p.strategy and number in self.verdicts]

    def _entry(self, number: int, winners: set[int]) -> Entry:
        seq, p = self.proposed[number]
        status, realised = self.verdicts[number].status, self._realised(number)
        before = next((n for n in self._ancestors(number)[1:] if self._ratio(n)), None)
        offered = {name for at, names in self.offers for name in parts(names) if at < seq}
        return Entry(
            run=self.run, task=self.started.task.sha, task_name=self.started.task.name, device=self.started.device.partition(":")[0],
            precision=self.started.precision, candidate=number, strategy=p.strategy, step=p.step,
            operators=self.operators.get(p.step) or self._all_operators(), title=p.title, changes=p.changes, program=self._program(number),
            status=status, expected=self.expected.get(number), realised=realised.ratio if realised else None, speedup=self._ratio(number),
            low=realised.low if realised else None, high=realised.high if realised else None,
            bottleneck=self.bottlenecks.get(before, "") if before else "", offered=not offered.isdisjoint(parts(p.strategy)),
            before=self._program(before) if before else "", outcome=outcome_of(status, realised), confirmed=number in winners,
        )  # fmt: skip

    def _program(self, number: int) -> str:
        program = self.proposed[number][1].program
        return program.sha if program else ""

    def _all_operators(self) -> list[str]:
        """Returns all operators of the task, for a program that belongs to no single step."""
        return list(dict.fromkeys(name for names in self.operators.values() for name in names))[:16]

    def _ratio(self, number: int) -> float | None:
        verdict = self.verdicts.get(number)
        return verdict.speedup.ratio if verdict is not None and verdict.status == "passed" and verdict.speedup else None

    def _realised(self, number: int) -> Interval | None:
        """Returns the realised gain with its interval, or None if nothing was measured or the parent program was not measured at the same time."""
        if self._ratio(number) is None:
            return None
        verdict = self.verdicts[number]
        made_from = any(self._ratio(n) for n in self._ancestors(number)[1:])
        return verdict.gain if made_from else verdict.speedup

    def _line(self, number: int | None) -> set[int]:
        return set(self._ancestors(number)) if number is not None else set()

    def _ancestors(self, number: int) -> list[int]:
        line: list[int] = []
        current: int | None = number
        while current is not None and current in self.proposed and current not in line:
            line.append(current)
            current = self.proposed[current][1].parent
        return line


def outcome_of(status: str, realised: Interval | None) -> Outcome:
    """Describes the outcome of a try. `status` is the status of the verdict in the quick tier, and `realised` is the gain over the parent program."""
    if status in ("inconclusive", "infrastructure_error", "") or (status == "passed" and realised is None):
        return "not measured"
    if status != "passed" or realised is None:
        return "not right"
    return "gained" if realised.ratio >= GAIN and realised.low > 1 else "no gain"
