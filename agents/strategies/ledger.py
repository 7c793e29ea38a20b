"""Expected against realised gain of every strategy that was tried: a projection of a run's events.

A candidate counts for the strategy it names, a first program for all of its strategies together. What it realised is its gain over the nearest
ancestor that passed, timed in turn with it (`gain` of its verdict; over eager for a first program): two ratios to eager, each of its own time,
differ by what eager differs, and say nothing. What was expected stands in the decision that asked for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import geometric_mean
from typing import Literal

from pydantic import BaseModel

from agents.events import Event, Projection
from agents.payloads import (
    CandidateProposed,
    DecisionMade,
    DiagnosisMade,
    EffectCompleted,
    Plan,
    PlanEdited,
    PlanProposed,
    RunFinished,
    RunStarted,
    VerificationFinished,
)
from agents.strategies.combined import parts
from verifier.report import Interval

GAIN = 1.02  # a realised gain below it is within the noise of tier quick

Outcome = Literal["gained", "no gain", "not right", "not measured"]


class Entry(BaseModel):
    """One application of one strategy."""

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
    status: str = ""  # of the verdict in tier quick
    expected: float | None = None
    realised: float | None = None
    low: float | None = None  # of the realised gain's 95 % interval
    high: float | None = None
    bottleneck: str = ""  # of the program that it was made from, by its diagnosis
    before: str = ""  # sha of that program's artefact
    offered: bool = False  # whether what earlier runs had earned with it stood in a request of this run before
    speedup: float | None = None  # against eager
    outcome: Outcome = "not measured"
    confirmed: bool = False  # the program, or one that was made from it, is the run's result, confirmed in tier full


@dataclass(frozen=True)
class Score:
    """A strategy's record over entries."""

    tried: int
    passed: int
    gained: int
    mean: float | None  # geometric mean of the realised gains of those that passed
    expected: float | None  # geometric mean of what was expected of the same ones, where an expectation was written down

    @property
    def win_rate(self) -> float | None:
        return self.gained / self.tried if self.tried else None


def entries(events: Iterable[Event]) -> list[Entry]:
    """One entry a candidate with a strategy and a verdict, in order of proposal."""
    reading = _Reading()
    for event in events:
        READ.take(reading, event)
    return reading.entries()


def score(of: Sequence[Entry]) -> Score:
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


PRIOR = 2.0  # tries that kept their promise exactly, which every strategy begins with
MOST_KEPT = 1.5  # of a promise: what one lucky try may count


class Record(BaseModel):
    """What a strategy has kept of what it promised on one kind of device: the sum, over its tries, of realised over expected gain as logarithms."""

    tried: int = 0
    kept: float = 0.0

    @property
    def trust(self) -> float:
        """1: gains were as promised; 0: none came."""
        return (self.kept + PRIOR) / (self.tried + PRIOR)

    def likely(self, expected: float) -> float:
        """The gain that a promised one will probably be."""
        return exp(log(expected) * self.trust) if expected > 1 else expected

    def plus(self, other: Record) -> Record:
        return Record(tried=self.tried + other.tried, kept=self.kept + other.kept)


def kept(expected: float | None, realised: float | None) -> float:
    """Of one try: 1 where the gain was what had been promised, 0 where there was none or the program was not right. Without a promise: whether it
    gained at all."""
    if not realised or realised <= 1:
        return 0.0
    if expected is None or expected <= 1:
        return float(realised >= GAIN)
    return min(log(realised) / log(expected), MOST_KEPT)


def records(of: Iterable[Entry]) -> dict[str, Record]:
    """By strategy, over entries of one kind of device. What could not be measured says nothing."""
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
    """What the entries need of a trace."""

    def __init__(self) -> None:
        self.run = ""
        self.started = RunStarted()
        self.operators: dict[str, list[str]] = {}
        self.proposed: dict[int, tuple[int, CandidateProposed]] = {}  # with the event's seq
        self.verdicts: dict[int, VerificationFinished] = {}
        self.expected: dict[int, float | None] = {}
        self.decisions: dict[int, DecisionMade] = {}
        self.in_span: dict[str, int] = {}  # candidate by the span that proposed it
        self.best: int | None = None
        self.held = False
        self.bottlenecks: dict[int, str] = {}  # of candidates
        self.offers: list[tuple[int, str]] = []  # seq, and the strategy that was offered from then on

    @READ.on(RunStarted)
    def _started(self, event: Event, p: RunStarted) -> None:
        self.run, self.started = event.run, p

    @READ.on(PlanProposed, PlanEdited)
    def _planned(self, event: Event, p: Plan) -> None:
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
        """Of a program that belongs to no single step."""
        return list(dict.fromkeys(name for names in self.operators.values() for name in names))[:16]

    def _ratio(self, number: int) -> float | None:
        verdict = self.verdicts.get(number)
        return verdict.speedup.ratio if verdict is not None and verdict.status == "passed" and verdict.speedup else None

    def _realised(self, number: int) -> Interval | None:
        """With its interval; null where nothing was measured, or not beside the program that it was made from."""
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
    """`status`: of the verdict in tier quick. `realised`: over what the program was made from."""
    if status in ("inconclusive", "infrastructure_error", "") or (status == "passed" and realised is None):
        return "not measured"
    if status != "passed" or realised is None:
        return "not right"
    return "gained" if realised.ratio >= GAIN and realised.low > 1 else "no gain"
