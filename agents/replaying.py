"""Replays a finished run: runs the same workflow and roles on the recorded replies and verdicts, and compares the events one by one.

No models are called and nothing is built or measured, because the recording replaces the models, the verifier, the documents and the earlier runs. A
replay lets you inspect a run in a debugger, try other prompts, or see where a code change first leads to a different decision.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agents.events import Event, NewEvent
from agents.forking import settings_of
from agents.journal import MemoryJournal
from agents.llm.cassette import Exchange, difference, exchanges_of, fingerprint
from agents.llm.errors import ModelFailure
from agents.llm.messages import Delta, Reply, Request
from agents.local import recalled
from agents.memory.experience import Recalled
from agents.memory.inspirations import Inspiration
from agents.payloads import (
    EffectCompleted,
    Failure,
    LlmCompleted,
    Payload,
    RunFinished,
    RunForked,
    RunStarted,
    VerificationFinished,
    VerificationQueued,
    artefact,
)
from agents.ports import Journal, Passage
from agents.replay import BESIDE
from agents.roles.casting import roles_for
from agents.roles.situation import Roles
from agents.run import Engine
from agents.workflows import FUNCTIONS
from verifier.jobs import Job, JobResult

TIMES = frozenset({"seconds", "of"})  # payload fields that may differ: durations and event numbers (deltas and stages are split differently)
HINT = "compare the versions of the program that recorded and replayed it"
PATIENCE = 2.0  # after this many seconds without an event, a reply no longer waits for its turn because the runs have diverged


class NotReplayable(ValueError):
    """Raised if a trace cannot be replayed. The message says why."""


@dataclass(frozen=True)
class Outcome:
    """The result. `difference` is empty if all events are the same; `exchanges` and `verifications` count the items replayed."""

    events: int
    exchanges: int
    verifications: int
    difference: str
    journal: MemoryJournal


async def replay(recorded: Journal, roles: Roles | None = None) -> Outcome:
    """Replays a run with the roles named in its settings, or with the given roles. Raises `NotReplayable`.

    The replay diverges if people sent notes, edited the plan or paused the run, because it does not repeat their actions.
    """
    events = await recorded.load()
    if not events or events[0].kind != RunStarted.kind:
        raise NotReplayable("the trace does not begin with run.started: there is nothing to replay")
    if any(event.kind == RunForked.kind for event in events):
        raise NotReplayable("this run is a fork: it began as another run, which can be replayed itself")
    started = events[0].of(RunStarted)
    assert started is not None
    journal = MemoryJournal(recorded.run)
    turns = Turns(events, journal)
    whole = events[-1].kind == RunFinished.kind
    models = RecordedModels(await exchanges_of(recorded), turns, whole)
    verifier = RecordedVerifier(events, recorded, journal, turns)
    program = (await recorded.get(started.program.sha)).decode() if started.program else None
    effects = Effects(events)
    settings = settings_of(events)
    engine = Engine(
        journal, verifier, settings, (await recorded.get(artefact(started.source))).decode(), started.task.name, FUNCTIONS[settings.workflow],
        roles or roles_for, program_source=program, models=models, on_pause="stop", library=effects.library(), inspirations=effects.inspirations(),
        experience=effects.experience(),
    )  # fmt: skip
    summary = await engine.execute()
    found = models.problem or first_difference(events, journal.events)
    if not found and summary.state == "paused" and whole:
        found = f"the replay pauses: {summary.reason or 'a person was asked'}"
    return Outcome(len(ordered(events)), models.played, verifier.played, found, journal)


def ordered(events: Sequence[Event]) -> list[Event]:
    return [event for event in events if event.kind not in BESIDE and event.kind != Failure.kind]


def first_difference(recorded: Sequence[Event], replayed: Sequence[Event]) -> str:
    """Describes the first event, in recorded order, that differs in the replay, or returns "" if there is none."""
    spans: dict[str, deque[Event]] = defaultdict(deque)
    for event in ordered(replayed):
        spans[event.span].append(event)
    for was in ordered(recorded):
        place = f"event {was.seq}, {was.kind} in {was.span or 'the run'}"
        if not spans[was.span]:
            return f"{place}: the replay does not reach it"
        now = spans[was.span].popleft()
        if now.kind != was.kind:
            return f"{place}: the replay is at {now.kind}"
        for name in sorted(was.payload.keys() | now.payload.keys()):
            old, new = was.payload.get(name), now.payload.get(name)
            if old != new and name not in TIMES and not (was.kind == RunStarted.kind and name == "budget"):  # a raised budget applies from the start
                return f"{place}: {name} was {_show(old)} and is {_show(new)}"
    left = [queue[0] for queue in spans.values() if queue]
    if left and recorded[-1].kind == RunFinished.kind:
        return f"the replay continues after the recorded run had ended: {left[0].kind} in {left[0].span or 'the run'}"
    return ""


class Turns:
    """Delivers results in recorded order, each after the events that preceded it, so that parallel workers interleave as they originally did."""

    def __init__(self, events: Sequence[Event], journal: MemoryJournal):
        self._journal = journal
        self._before: dict[int, int] = {}
        count = 0
        for event in events:
            self._before[event.seq] = count
            count += in_turn(event)

    async def wait(self, seq: int) -> None:
        seen, since = -1, time.monotonic()
        while self._now() < self._before[seq]:
            if len(self._journal.events) != seen:
                seen, since = len(self._journal.events), time.monotonic()
            elif time.monotonic() - since > PATIENCE:
                return
            await asyncio.sleep(0.002)

    def _now(self) -> int:
        return sum(map(in_turn, self._journal.events))


def in_turn(event: Event) -> bool:
    """Returns whether workers that synchronise with each other must see this event in recorded order."""
    return event.kind in (LlmCompleted.kind, VerificationFinished.kind) or event.kind not in BESIDE


class RecordedModels:
    """A `ModelPort` that plays back the exchanges of one trace. It finds them by their journal keys and fails on a request that differs from the
    recorded one."""

    def __init__(self, exchanges: Sequence[tuple[int, Exchange]], turns: Turns, whole: bool):
        self._by_key = {exchange.key: (seq, exchange) for seq, exchange in exchanges}
        self._turns, self._whole = turns, whole
        self.played = 0
        self.problem = ""

    def known(self, profile: str) -> bool:
        return True  # every profile in the recording was known when it was made

    def estimate(self, profile: str, request: Request) -> dict[str, float]:
        mark = fingerprint(request)
        return next((dict(e.estimate) for _, e in self._by_key.values() if fingerprint(e.request) == mark and e.estimate), {"calls": 1})

    async def ask(self, profile: str, request: Request, *, key: str, run: str, on_delta: Any) -> Reply:
        seq, exchange = self._by_key.get(key, (0, None))
        if exchange is None:
            missing = f"{request.purpose or 'a request'} at {key} was never asked in the recorded run"
            self.problem = self.problem or (missing if self._whole else "")  # in an interrupted recording, a missing reply is not an error
            raise ModelFailure("configuration", missing, HINT, attempts=0)
        if fingerprint(exchange.request) != fingerprint(request):
            self.problem = f"{request.purpose or 'a request'} at {key} is different now: {difference(request, exchange)}"
            raise ModelFailure("configuration", self.problem, HINT, attempts=0)
        await self._turns.wait(seq)
        await on_delta(Delta(text=exchange.reply.text))
        self.played += 1
        return exchange.reply


class RecordedVerifier:
    """A `VerifierPort` that plays back the verdicts of one trace with their original durations."""

    def __init__(self, events: Sequence[Event], recorded: Journal, journal: Journal, turns: Turns):
        started = events[0].of(RunStarted)
        self.device = started.device if started is not None else ""
        self._described = Effects(events).first("device") or {}
        self._finished = {done.key: (event.seq, done) for event in events if (done := event.of(VerificationFinished)) is not None}
        self._queued = {queued.key: queued for event in events if (queued := event.of(VerificationQueued)) is not None}
        self._recorded, self._journal, self._turns = recorded, journal, turns
        self.played = 0

    async def describe(self) -> dict[str, Any]:
        return dict(self._described)

    async def run(self, job: Job, *, key: str, span: str, candidate: str | None = None) -> JobResult:
        if key not in self._finished:
            return await self._unknown(job, key, span, candidate)
        if key in self._queued:
            request = await self._journal.put(job.model_dump_json().encode(), "application/json", "job.json")
            await self._append(self._queued[key].having(request=request), span)
        seq, done = self._finished[key]
        await self._turns.wait(seq)
        for ref in (done.result, done.timeline):
            if ref is not None:
                await self._journal.put(await self._recorded.get(ref.sha), ref.media_type, ref.name)
        await self._append(done, span)
        self.played += 1
        return await recalled(self._recorded, done)

    async def _unknown(self, job: Job, key: str, span: str, candidate: str | None) -> JobResult:
        """Reports a verifier failure, which ends the replay, because the two runs have already diverged."""
        result = JobResult(error=f"the recorded run has no job {job.kind} at {key}")
        kept = await self._journal.put(result.model_dump_json().encode(), "application/json", "result.json")
        number = int(candidate) if candidate is not None else None
        done = VerificationFinished(key=key, job=job.kind, candidate=number, verification=key, result=kept, seconds=0.0)
        await self._append(done.having(status="infrastructure_error", message=result.error), span)
        return result

    async def _append(self, payload: Payload, span: str) -> None:
        await self._journal.append([NewEvent.of(payload, span, "verifier")])


class Effects:
    """The small effects of the recorded run, by name and in order: results of looking up documents and earlier runs."""

    def __init__(self, events: Sequence[Event]):
        self._values: dict[str, deque[Any]] = defaultdict(deque)
        for event in events:
            if (effect := event.of(EffectCompleted)) is not None:
                self._values[effect.name].append(effect.value)

    def first(self, name: str) -> Any:
        return self._values[name][0] if self._values[name] else None

    def take(self, name: str) -> list[Any]:
        return self._values[name].popleft() if self._values[name] else []

    def library(self) -> RecordedLibrary | None:
        return RecordedLibrary(self) if self._values["library"] else None

    def experience(self) -> RecordedExperience | None:
        return RecordedExperience(self) if self._values["experience"] else None

    def inspirations(self) -> RecordedInspirations | None:
        return RecordedInspirations(self) if self._values["inspirations"] else None


class RecordedLibrary:
    def __init__(self, effects: Effects):
        self._effects = effects

    async def search(self, query: str, count: int) -> list[Passage]:
        return [Passage(**row) for row in self._effects.take("library")]


class RecordedInspirations:
    def __init__(self, effects: Effects):
        self._effects = effects

    async def find(self, operators: Sequence[str], device: str, exclude: Any) -> list[Inspiration]:
        return [Inspiration.model_validate(row) for row in self._effects.take("inspirations")]


class RecordedExperience:
    def __init__(self, effects: Effects):
        self._effects = effects

    async def recall(self, device_model: str, kernels: list[str], exclude: Any) -> Recalled:
        return Recalled.model_validate(self._effects.take("experience") or {})

    async def learn(self, device_model: str, task: str, records: Any, tuned: Any) -> None:
        """Does nothing, because a replay yields nothing new to learn."""


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else text[:197] + "..."
