"""The engine: executes one run to a named outcome, from its start or from the end of its journal."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from agents.budget import Ledger, OutOfBudget, Still, seconds_worked
from agents.choices.workflows import WORKFLOWS
from agents.events import Agent, Event, NewEvent
from agents.forking import former, roles_in_force, settings_of_fork
from agents.notes import Notes
from agents.payloads import BudgetUpdated, ControlRequested, Failure, RunFinished, RunForked, RunPaused, RunResumed, RunStarted, SpanClosed, TaskRef
from agents.ports import Journal, LeaseLost, Library, ModelPort, VerifierPort
from agents.projection import Summary, apply
from agents.replay import Replay
from agents.settings import Settings
from agents.span import Ended, Span
from verifier.report import Interval
from verifier.source import sha256

if TYPE_CHECKING:
    from agents.memory.experience import ExperiencePort
    from agents.memory.inspirations import Inspirations, Split
    from agents.roles.situation import Roles

log = logging.getLogger(__name__)
LOOK_SECONDS = 0.2  # interval in seconds at which a paused run checks whether the calls in flight have ended
T = TypeVar("T")

RECORDED = tuple(name for name in Settings.model_fields if name not in ("tier", "budget"))
CONFIRM_FACTOR = 3.0  # the full tier has more trials and baselines, so the search reserves this multiple of the last quick verification's time


class _Promised:
    """Treats every profile as known during a run. A missing profile pauses the run instead of ending it, so that the setup can be fixed."""

    def known(self, profile: str) -> bool:
        return True


PROMISED = _Promised()


@dataclass(frozen=True)
class Finish:
    """How a workflow ended. `speedup` is set only if the speedup was confirmed in the full tier."""

    outcome: str
    reason: str
    best: int | None = None
    speedup: Interval | None = None


Workflow = Callable[["Engine"], Awaitable[Finish]]
Casting = Callable[[Settings, ModelPort | None], "Roles"]  # builds the roles named in the settings; see `agents.roles.casting.roles_for`


class Engine:
    """Manages the events, effects, budget, control and resumption of one run. A workflow decides what to do next.

    `execute` returns the run's summary, even if the run had already finished. It raises `asyncio.CancelledError` if it is cancelled from outside
    because the process is stopping. In that case, nothing more is written, and a later engine continues from the journal.
    """

    def __init__(
        self,
        journal: Journal,
        verifier: VerifierPort,
        settings: Settings,
        task_source: str,
        task_name: str,
        workflow: Workflow,
        roles: Roles | Casting,  # roles for the whole run, or a function of the settings in effect
        *,
        program_source: str | None = None,  # workflow "verify"
        models: ModelPort | None = None,
        # What to do while the run is paused: wait until a person resumes it; return if it needs a model or a person ("stop"); or return for any
        # pause, regardless of its cause, once no call is in flight ("leave").
        on_pause: Literal["wait", "stop", "leave"] = "wait",
        library: Library | None = None,  # documents that a diagnosis may consult
        inspirations: Inspirations | None = None,  # lessons from earlier runs
        experience: ExperiencePort | None = None,  # strategy records and kernel numbers from earlier runs on the same device
        split: Split | None = None,  # benchmark that is being scored, so nothing from it may be recalled; null: only this task
    ):
        self.journal, self.verifier, self._settings = journal, verifier, settings
        self._former: list[tuple[int, Settings]] = []  # earlier settings of a forked run, each with the seq of the fork that replaced them
        self.task_source, self.task_name, self.program_source = task_source, task_name, program_source
        self.roles, self.models, self.on_pause = roles, models, on_pause
        self.library, self.inspirations, self.experience, self.split = library, inspirations, experience, split
        self.ledger = Ledger(settings.budget)
        self.replay = Replay()
        self.still = Still()
        self.notes = Notes()
        self.summary = Summary()
        self._workflow = workflow
        self._seen = 0
        self._io = asyncio.Lock()
        self._running = asyncio.Event()
        self._running.set()
        self._pausing = asyncio.Lock()
        self._resumed_by = "a person"
        self._cancelled_by: str | None = None
        self._allotted = 0
        self._lost = self._left = False
        self._worker: asyncio.Task[Finish] | None = None
        self._since = time.monotonic()

    @property
    def settings(self) -> Settings:
        """The settings in effect. A forked run uses its parent's settings until the workflow has replayed the inherited events."""
        return self.settings_for(None)

    def settings_for(self, span: str | None) -> Settings:
        return next((settings for fork, settings in self._former if self.replay.inherited(fork, span)), self._settings)

    def cast(self) -> Roles:
        """Returns the active roles. The compiler plays the roles for which the workflow uses no model."""
        roles = self.roles
        if not callable(roles):
            return roles

        def chosen(settings: Settings) -> Roles:
            return roles(settings.model_copy(update=dict.fromkeys(WORKFLOWS[settings.workflow].compiled, "built-in")), self.models)

        return roles_in_force(self, chosen) if self._former else chosen(self._settings)

    def span(self, path: str, title: str, agent: Agent = "engine") -> Span:
        return Span(self, path, title, agent)

    async def parallel(self, *calls: Coroutine[Any, Any, T]) -> list[T | OutOfBudget]:
        """Runs workers concurrently, each with its own spans, until all have ended. If the budget refused one of a worker's calls, the worker's
        result is the `OutOfBudget` exception. Any other exception cancels the remaining workers and is raised."""
        tasks = [asyncio.ensure_future(_refusable(call)) for call in calls]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def allot(self, number: int | None = None) -> int:
        """Returns the number of a new candidate: the given number, or the next free one."""
        if number is None:
            number = max([self._allotted, *(c.number for c in self.summary.candidates)]) + 1
        self._allotted = max(self._allotted, number)
        return number

    async def execute(self) -> Summary:
        """Starts or resumes the run and continues until it ends or halts (`on_pause`)."""
        recorded = await self.journal.load()
        self.replay = Replay(recorded)
        self._former = former(recorded)
        for event in recorded:
            self._absorb(event)
        if self.summary.state == "finished":
            return self.summary
        self.ledger.write_off(self._asked_of_people())
        self.ledger.spent.seconds = seconds_worked(recorded)
        self._since = time.monotonic()
        try:
            if recorded and self._running.is_set() and self.summary.state != "queued" and recorded[-1].kind != RunForked.kind:
                reason = f"resumed by {self._resumed_by}" if self.summary.state == "paused" else "continued after an interruption"
                await self.append([NewEvent.of(RunResumed(reason=reason), agent="engine")])
            return await self._to_the_end()
        except LeaseLost:
            log.info("run %s has another owner now", self.journal.run)
            return self.summary

    async def _to_the_end(self) -> Summary:
        if self._cancelled_by is not None:
            await self._finish(self._cancellation())
            return self.summary
        self._worker = asyncio.create_task(self._work())
        watcher = asyncio.create_task(self._watch())
        try:
            finish = await self._worker
        except asyncio.CancelledError:
            if self._lost:
                raise LeaseLost(f"run {self.journal.run} has another owner") from None
            if self._left:
                return self.summary
            if self._cancelled_by is None:
                await _stop(self._worker)
                raise
            finish = self._cancellation()
        except LeaseLost:
            raise
        except Exception as error:
            log.exception("run %s failed", self.journal.run)
            finish = Finish("failed", f"the engine stopped at an unexpected {type(error).__name__}: {error}"[:2000], self._best_known())
            await _stop(watcher)
            await self._finish(finish, error)
            return self.summary
        finally:
            await _stop(watcher)
        await self._finish(finish)
        return self.summary

    async def _work(self) -> Finish:
        root = Span(self, "", "")
        if self.summary.state == "queued" or self.replay.ahead(""):
            await root.emit(await self._started(), "engine")
        try:
            return await self._workflow(self)
        except Ended as ended:
            return Finish(ended.outcome, ended.reason, self._best_known())
        except OutOfBudget as error:
            return Finish("out_of_budget", str(error), self._best_known())

    async def _started(self) -> RunStarted:
        settings = self.settings
        source = await self.journal.put(self.task_source.encode(), "text/x-python", "task.py")
        payload = RunStarted(
            task=TaskRef(sha=sha256(self.task_source), name=self.task_name), source=source, budget=settings.budget.model_dump(),
            **{name: getattr(settings, name) for name in RECORDED},
        )  # fmt: skip
        if self.program_source is None:
            return payload
        program = await self.journal.put(self.program_source.encode(), "text/x-python", "program.py")
        return payload.having(tier=settings.tier, program=program)

    async def describe_device(self) -> dict[str, Any]:
        """Returns the verifier's figures for its device (threads, bandwidth, ...), or an empty dict if it provides none."""
        describe = getattr(self.verifier, "describe", None)
        return await describe() if describe is not None else {}

    # the journal

    async def append(self, events: Sequence[NewEvent]) -> list[Event]:
        """Appends atomically. If a cancellation arrives during an append, waits for the append to finish, so that the engine's state always matches
        what was written."""
        task = asyncio.ensure_future(self._append(events))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            with suppress(Exception):
                await task
            raise

    async def _append(self, events: Sequence[NewEvent]) -> list[Event]:
        async with self._io:
            written = await self.journal.append(events)
            if written and written[0].seq == self._seen + 1:
                for event in written:
                    self._absorb(event)
                return written
        await self.refresh()
        return written

    async def refresh(self) -> None:
        """Reads events from other writers: job stages and results, and requests from people."""
        async with self._io:
            for event in await self.journal.since(self._seen):
                self._absorb(event)

    def _absorb(self, event: Event) -> None:
        if event.seq <= self._seen:
            return
        self._seen = event.seq
        apply(self.summary, event)
        self.replay.absorb(event)
        self.ledger.account(event)
        self.still.account(event)
        self.notes.absorb(event)
        match event.body:
            case ControlRequested() as asked:
                self._control(asked)
            case RunForked() as fork:  # the parent's control requests and limits do not apply to this run
                self.ledger.limits = settings_of_fork(fork).budget
                self._running.set()
                self._cancelled_by = None
            case RunPaused(kind_=kind) if kind:
                self._running.clear()  # something is missing, so the run stays paused, even after an interruption, until a person resumes it

    # control

    def _control(self, asked: ControlRequested) -> None:
        by = asked.by or "a person"
        if asked.action == "pause":
            self._running.clear()
        elif asked.action == "resume":
            self._resumed_by = by
            self._running.set()
        elif asked.action == "cancel" and self._cancelled_by is None:
            self._cancelled_by = by
            if self._worker is not None:
                self._worker.cancel()
        elif asked.action == "raise-budget":
            self.ledger.raise_limits(asked.limits)

    async def _watch(self) -> None:
        try:
            async for _ in self.journal.wakeups():
                await self.refresh()
        except LeaseLost:
            self._lost = True
            if self._worker is not None:
                self._worker.cancel()

    async def gate(self) -> None:
        """Waits while the run is paused. Called before every real call."""
        await self.refresh()
        if not self._running.is_set():
            await self._pause(RunPaused(reason="paused by a person"))

    async def hold(self, reason: str, kind: str, hint: str = "", **more: str) -> None:
        """Pauses until a person resumes the run, because a model failed (`kind` is the kind of failure) or because a person's answer is needed
        ("review")."""
        self._running.clear()
        await self._pause(RunPaused(reason=reason[:2000], kind_=kind, hint=hint[:1000], **more), leave=self.on_pause == "stop")

    def keeps(self, profile: str) -> bool:
        """Returns whether requests to this profile stay pending across interruptions."""
        keeps = getattr(self.models, "keeps", None)
        return keeps is not None and keeps(profile)

    def _asked_of_people(self) -> list[str]:
        """Returns the keys of the exchanges that are waiting for a person's reply."""
        return [key for key, asked in self.replay.asked.items() if self.keeps(asked.profile)]

    async def need_device(self) -> None:
        """Checks that the device is available before a job. A run that was resumed on a host without its device waits here until it is moved to a
        host that has one. Nothing is lost."""
        missing = getattr(self.verifier, "missing", None)
        while missing is not None and self.replay.finished and (why := await missing()):
            hint = f"continue with solve and --resume on a host with {self.settings.device}"
            await self.hold(f"the next step needs {self.settings.device}: {why}", "device", hint)

    async def _pause(self, payload: RunPaused, *, leave: bool = False) -> None:
        async with self._pausing:  # the trace records it only once, regardless of how many workers stop here
            if self._running.is_set():
                return
            if self.summary.state != "paused":
                self.count_time()
                await self.append([self.budget_event(), NewEvent.of(payload, agent="engine")])
            if (leave or self.on_pause == "leave") and await self._stands_still(leave):
                self._left = True
                if self._worker is not None:
                    self._worker.cancel()
            await self._running.wait()
            self._since = time.monotonic()
            await self.append([NewEvent.of(RunResumed(reason=f"resumed by {self._resumed_by}"), agent="engine")])

    async def _stands_still(self, leave: bool = False) -> bool:
        """Returns True once no call is in flight. Waits for other workers' calls, because they are already paid for. Returns False if a person
        resumes the run first. A run that has to `leave` does not wait for a person's replies, which may take hours, because they cost nothing and are
        requested again."""
        while not self._running.is_set():
            if not self.ledger.in_flight(self._asked_of_people() if leave else ()):
                return True
            with suppress(TimeoutError):
                await asyncio.wait_for(self._running.wait(), LOOK_SECONDS)
        return False

    # the budget

    def count_time(self) -> None:
        now = time.monotonic()
        if self.summary.state != "paused":
            self.ledger.spend({"seconds": now - self._since})
        self._since = now

    def kept_back(self) -> dict[str, float]:
        """Returns the amount that the search must leave unspent so that the winner can still be confirmed."""
        quick = self.ledger.usual_seconds.get("verify.quick", 0.0)
        return {"verifier_seconds": CONFIRM_FACTOR * quick, "seconds": CONFIRM_FACTOR * quick}

    def budget_event(self, span: str = "") -> NewEvent:
        self.count_time()
        spent = {unit: round(value, 6 if unit == "dollars" else 3) for unit, value in self.ledger.spent.model_dump().items()}
        return NewEvent.of(BudgetUpdated(spent=spent, limits=self.ledger.limits.model_dump()), span, "engine")

    # the end

    def _best_known(self) -> int | None:
        best = self.summary.best_candidate()
        return best.number if best else None

    def _cancellation(self) -> Finish:
        return Finish("cancelled", f"cancelled by {self._cancelled_by}; what was measured until then is kept", self._best_known())

    async def _finish(self, finish: Finish, error: Exception | None = None) -> None:
        """Closes everything that is still open and ends the run, all in a single append."""
        await self.refresh()
        if self.summary.state == "finished":
            return
        status = "failed" if error else "skipped"
        closing = [
            NewEvent.of(SpanClosed(status=status, seconds=None, summary=finish.reason[:500]), path, "engine")
            for path in reversed(self.summary.open_spans())
        ]
        if error is not None:
            where = self.summary.open_spans()[-1] if self.summary.open_spans() else "the run"
            kept = "all events, artefacts and reports up to here"
            message = f"{type(error).__name__}: {error}"[:4000]
            closing.append(NewEvent.of(Failure(message=message, where=where, kept=kept), agent="engine"))
        ended = RunFinished(outcome=finish.outcome, reason=finish.reason, best=finish.best, speedup=finish.speedup)
        if self.summary.state == "queued":  # cancelled before it began, but even this trace must start with run.started
            closing.insert(0, NewEvent.of(await self._started(), agent="engine"))
        closing += [self.budget_event(), NewEvent.of(ended, agent="engine")]
        await self.append(closing)


def all_of(done: Sequence[T | OutOfBudget]) -> list[T]:
    """Returns the results of the workers run by `Engine.parallel`. Raises the first `OutOfBudget` among them."""
    given: list[T] = []
    for outcome in done:
        if isinstance(outcome, OutOfBudget):
            raise outcome
        given.append(outcome)
    return given


async def _refusable(call: Coroutine[Any, Any, T]) -> T | OutOfBudget:
    try:
        return await call
    except OutOfBudget as refusal:
        return refusal


async def _stop(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError, Exception):
        await task
