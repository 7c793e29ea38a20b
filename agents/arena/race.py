"""Runs workflows on landscapes. The engine and the workflows are real, the model is simulated, and times come from a table. Each workflow runs with
many seeds.

One play is one run, identified by (landscape, workflow, seed). A play takes milliseconds, so a race can use a thousand seeds and distinguish
workflows that a hundred seeds could not tell apart.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Any, cast

from agents.arena.landscape import Landscape, Table
from agents.arena.landscape_roles import cast as roles_of
from agents.arena.model import PROFILE, Hand, PlayedModel, Quality
from agents.arena.played_verifier import PlayedVerifier, Verified
from agents.choices.workflows import WORKFLOWS
from agents.events import ArtefactRef, Event, NewEvent
from agents.payloads import Payload, read
from agents.ports import Journal
from agents.run import Engine
from agents.settings import Budget, Settings
from agents.workflows import FUNCTIONS

NEAR_BEST = 0.95
BATCH = 100  # plays per batch for a worker process
AT = "2026-01-01T00:00:00.000000+00:00"  # simulated time stands still


@dataclass(slots=True)
class PlayedEvent:
    """An `Event` without validation, which would take longer than all other processing of the event."""

    run: str
    seq: int
    span: str
    agent: str
    kind: str
    payload: dict[str, Any]
    at: str = AT
    v: int = 1
    said: Payload | None = None  # the typed payload, parsed on first use

    @property
    def parent(self) -> str:
        return self.span.rpartition("/")[0]

    @property
    def body(self) -> Payload:
        if self.said is None:
            self.said = read(self.kind, self.payload)
        return self.said

    of = Event.of


class PlayedJournal:
    """The trace of a play, kept in memory because the engine needs one. Artefacts are discarded. No other process writes to the trace, so there is
    nothing to wait for."""

    def __init__(self, run: str):
        self.run = run
        self.events: list[PlayedEvent] = []

    async def load(self) -> list[PlayedEvent]:
        return list(self.events)

    async def append(self, events: Sequence[NewEvent]) -> list[PlayedEvent]:
        first = len(self.events) + 1
        made = [PlayedEvent(self.run, first + i, e.span, e.agent, e.kind, e.payload) for i, e in enumerate(events)]
        self.events.extend(made)
        return made

    async def since(self, seq: int) -> list[PlayedEvent]:
        return self.events[seq:]

    async def wakeups(self) -> AsyncIterator[None]:
        await asyncio.Event().wait()
        yield

    async def put(self, data: bytes, media_type: str, name: str = "") -> ArtefactRef:
        return _NOWHERE

    async def get(self, sha: str) -> bytes:
        raise KeyError("a play keeps no artefacts")


_NOWHERE = ArtefactRef(sha="", media_type="", bytes=0)


@dataclass
class Play:
    """The result of one run. Regret is relative time: 1 - best / found. The winner is never slower than eager, which is available without any
    program."""

    landscape: str
    workflow: str
    seed: int
    outcome: str
    reason: str
    calls: int
    tokens: int
    dollars: float
    programs: int
    verifier_seconds: float
    model_seconds: float
    found: float  # speedup of the winner over eager, from the table; 1 if there is none
    best: float  # best speedup in the whole table
    regret_by_call: list[float] = field(default_factory=list)  # regret after 0, 1, 2, ... model calls
    regret_by_program: list[float] = field(default_factory=list)
    calls_to_near_best: int | None = None  # calls needed to reach 95 % of the best; None: never reached
    programs_to_near_best: int | None = None
    failed: int = 0  # number of incorrect programs
    repaired: int = 0  # number of failed programs followed by a correct one with the same parents
    gains: int = 0  # number of programs that were the fastest so far when found
    purposes: dict[str, int] = field(default_factory=dict)  # calls per prompt

    @property
    def success(self) -> bool:
        """Returns whether the play found a correct program that is faster than eager."""
        return self.found > 1


def play(landscape: Landscape, workflow: str, seed: int, quality: Quality, budget: Budget) -> Play:
    return asyncio.run(played(landscape, workflow, seed, quality, budget))


async def played(landscape: Landscape, workflow: str, seed: int, quality: Quality, budget: Budget) -> Play:
    return (await logged(landscape, workflow, seed, quality, budget))[0]


async def logged(landscape: Landscape, workflow: str, seed: int, quality: Quality, budget: Budget) -> tuple[Play, list[Verified]]:
    """Returns a play together with the verifications that it requested."""
    settings = Settings.model_validate({"workflow": workflow, "planner": PROFILE, "coder": PROFILE, "judge": PROFILE, "budget": budget, "seed": seed})
    journal = PlayedJournal(str(uuid.UUID(int=seed)))
    kept = cast(Journal, journal)  # the journal's events are of type `PlayedEvent`
    verifier = PlayedVerifier(landscape, kept, seed)
    models = PlayedModel(quality, seed)
    roles = roles_of(Hand(landscape, quality, seed), WORKFLOWS[workflow].models)
    source, name = landscape.source, landscape.name
    engine = Engine(kept, verifier, settings, source, name, FUNCTIONS[workflow], roles, models=models, on_pause="stop")
    verifier.engine = engine
    summary = await engine.execute()
    return outcome_of(landscape, workflow, seed, summary, engine, verifier, models), verifier.log


def outcome_of(landscape: Landscape, workflow: str, seed: int, summary: Any, engine: Engine, verifier: PlayedVerifier, models: PlayedModel) -> Play:
    spent = engine.ledger.spent
    chosen = next((v.point for v in reversed(verifier.log) if v.candidate == summary.best), None) if summary.best is not None else None
    result = Play(
        landscape.name, workflow, seed, summary.outcome, summary.reason, int(spent.calls), int(spent.tokens), spent.dollars, spent.candidates,
        verifier.seconds, models.seconds, found=max(1.0, landscape.speedup(chosen)) if chosen is not None else 1.0,
        best=max(1.0, landscape.eager_us / landscape.best_us), purposes=dict(models.by_purpose),
    )  # fmt: skip
    quick = [v for v in verifier.log if v.tier == "quick"]
    result.failed = sum(v.status != "passed" for v in quick)
    result.repaired = sum(before.status != "passed" and after.status == "passed" for before, after in zip(quick, quick[1:], strict=False))
    curves(landscape, quick, result)
    return result


def curves(landscape: Landscape, quick: Sequence[Verified], result: Play) -> None:
    """Records the regret, based on the table's times, of the program that is currently best according to the workflow's own measurements."""
    best, incumbent, measured = result.best, 1.0, float("inf")
    by_call, by_program = [1 - 1 / best], [1 - 1 / best]
    for entry in quick:
        if entry.status == "passed" and entry.measured_us is not None and entry.measured_us < measured:
            measured = entry.measured_us
            result.gains += 1
            incumbent = max(1.0, landscape.speedup(entry.point))
        regret = max(0.0, 1 - incumbent / best)
        by_call += [by_call[-1]] * (entry.calls - len(by_call)) if entry.calls > len(by_call) else []
        if entry.calls < len(by_call):
            by_call[entry.calls] = regret
        else:
            by_call.append(regret)
        by_program.append(regret)
        if regret <= 1 - NEAR_BEST and result.programs_to_near_best is None:
            result.programs_to_near_best, result.calls_to_near_best = len(by_program) - 1, entry.calls
    result.regret_by_call, result.regret_by_program = by_call, by_program


@dataclass(frozen=True)
class Task:
    """A batch for a worker process: one landscape, one workflow and several seeds."""

    landscape: Landscape
    workflow: str
    seeds: tuple[int, ...]
    quality: Quality
    budget: Budget


def plays_of(task: Task) -> list[Play]:
    async def all_seeds() -> list[Play]:
        return [await played(task.landscape, task.workflow, seed, task.quality, task.budget) for seed in task.seeds]

    return asyncio.run(all_seeds())


def race(
    table: Table, pairs: Sequence[tuple[str, str]], seeds: Sequence[int], quality: Quality, budget: Budget, workers: int
) -> Iterator[list[Play]]:
    """Yields all plays of these (landscape, workflow) pairs, batch by batch, in order."""
    named = {landscape.name: landscape for landscape in table.landscapes}
    tasks = [
        Task(named[landscape], workflow, tuple(seeds[at : at + BATCH]), quality, budget)
        for landscape, workflow in pairs
        for at in range(0, len(seeds), BATCH)
    ]
    if workers <= 1 or not tasks:
        yield from map(plays_of, tasks)
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield from pool.map(plays_of, tasks)
