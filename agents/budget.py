"""The budget of a run: its limits and spending in every unit.

Spending is reserved before a call and recorded after it. Limits can be raised in between.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from pydantic import BaseModel

from agents.choices.limits import LIMITS
from agents.events import Event, Projection
from agents.payloads import (
    BudgetUpdated,
    CandidateProposed,
    Ended,
    LlmCompleted,
    LlmFailed,
    LlmRequested,
    RunForked,
    RunPaused,
    RunResumed,
    RunStarted,
    VerificationFinished,
    VerificationQueued,
    VerificationStage,
)
from agents.settings import Budget


class Spent(BaseModel):
    candidates: int = 0
    calls: int = 0
    tokens: int = 0
    dollars: float = 0.0
    verifier_seconds: float = 0.0
    seconds: float = 0.0  # running time, excluding pauses


class OutOfBudget(Exception):
    """Raised instead of starting a call that would exceed the budget in some unit."""

    def __init__(self, unit: str, spent: float, limit: float, wanted: float = 0.0):
        """`wanted`: what the next call needs, with what has to remain after it."""
        what = LIMITS[unit].one if limit == 1 else LIMITS[unit].many
        short = f"is too small for the next step ({spent:.4g} used, about {wanted:.4g} needed)"
        super().__init__(f"the budget of {limit:g} {what} {short if spent < limit and wanted else f'is spent ({spent:.4g} used)'}")
        self.unit, self.spent, self.limit, self.wanted = unit, spent, limit, wanted


ACCOUNTS: Projection[Ledger, Event] = Projection()


class Ledger:
    """The ledger of a run. Reservations for calls in flight count as spent, so parallel workers can overshoot by no more than those calls.

    Except for wall time, the ledger is a projection of the trace: `account` counts every event exactly once, including events from earlier sessions.
    When a run is resumed, all past spending is therefore known before the first call is made.
    """

    def __init__(self, limits: Budget):
        self.limits = limits
        self.spent = Spent()
        self.usual_seconds: dict[str, float] = {}  # last job duration by "kind.tier", used as the estimate for a reservation
        self._held: dict[str, dict[str, float]] = {}  # reservations, keyed by effect key
        self._asked: dict[str, dict[str, float]] = {}  # estimates for exchanges whose end is not yet in the trace, keyed by effect key
        self._begun: dict[str, str] = {}  # time at which each job was queued or its first stage began, keyed by effect key
        self._waiting: set[str] = set()

    def reserve(self, key: str, amounts: dict[str, float], keep: dict[str, float] | None = None) -> None:
        """Reserves `amounts` under `key`, or raises `OutOfBudget`. `keep` is the amount that must remain afterwards, for example to confirm the
        winner.

        An amount is an estimate and may be 0; the call is still refused if it needs a unit that is used up. Wall time is always checked; other units
        only if the call names them.
        """
        for unit in LIMITS:
            limit = getattr(self.limits, unit)
            if limit is None or not (unit in amounts or unit == "seconds" or unit in (keep or {})):
                continue
            used = getattr(self.spent, unit) + sum(held.get(unit, 0) for held in self._held.values())
            wanted = amounts.get(unit, 0) + (keep or {}).get(unit, 0)
            if used >= limit or used + wanted > limit:
                raise OutOfBudget(unit, used, limit, wanted)
        self._held[key] = dict(amounts)

    def release(self, key: str) -> None:
        self._held.pop(key, None)

    def in_flight(self, but: Collection[str] = ()) -> bool:
        """Returns whether any call with a reservation is in flight, ignoring the keys in `but`."""
        return any(key not in but for key in self._held)

    def spend(self, amounts: dict[str, float]) -> None:
        for unit, amount in amounts.items():
            setattr(self.spent, unit, getattr(self.spent, unit) + amount)

    def account(self, event: Event) -> None:
        """Records the spending that an event reports, and releases the reservation of its effect."""
        ACCOUNTS.take(self, event)

    def write_off(self, waiting: Collection[str] = ()) -> None:
        """Charges for exchanges that began but never ended because a process died: the server may have billed all of them. Skips exchanges whose keys
        are in `waiting`, because their replies are still pending."""
        for key in [key for key in self._asked if key not in waiting]:
            self.spend(self._asked.pop(key))

    @ACCOUNTS.on(VerificationQueued)
    def _queued(self, event: Event, p: VerificationQueued) -> None:
        self._begun[p.key] = event.at
        self._waiting.add(p.key)

    @ACCOUNTS.on(VerificationStage)
    def _stage(self, event: Event, p: VerificationStage) -> None:
        if p.key in self._waiting:
            self._begun[p.key] = event.at
            self._waiting.discard(p.key)

    @ACCOUNTS.on(VerificationFinished)
    def _verified(self, event: Event, p: VerificationFinished) -> None:
        seconds = p.seconds
        if seconds is None:
            begun = self._begun.get(p.key, event.at)
            seconds = (datetime.fromisoformat(event.at) - datetime.fromisoformat(begun)).total_seconds()
        self.usual_seconds[f"{p.job}.{p.tier or ''}"] = seconds
        self.release(p.key)
        self.spend({"verifier_seconds": seconds})

    @ACCOUNTS.on(CandidateProposed)
    def _proposed(self, event: Event, p: CandidateProposed) -> None:
        self.release(p.key)
        self.spend({"candidates": 1})

    @ACCOUNTS.on(LlmRequested)
    def _requested(self, event: Event, p: LlmRequested) -> None:
        self.spend(self._asked.pop(p.key, {}))  # sent by a process that died before the reply was complete
        self._asked[p.key] = p.estimate

    @ACCOUNTS.on(LlmCompleted, LlmFailed)
    def _replied(self, event: Event, p: Ended) -> None:
        self._asked.pop(p.key, None)
        self.release(p.key)
        self.spend(p.spent)

    @ACCOUNTS.on(RunForked)
    def _forked(self, event: Event, p: RunForked) -> None:
        """Drops work that the parent's workers had in progress, which is charged to the parent run."""
        self._asked.clear()
        self._held.clear()

    def raise_limits(self, limits: dict[str, float | None]) -> None:
        """Raises limits by unit; None removes a limit. Values below the current limit are ignored, because a budget can only be raised."""
        known = {}
        for unit, value in limits.items():
            if unit not in LIMITS or isinstance(value, bool) or (value is not None and not isinstance(value, (int, float))):
                continue
            present = getattr(self.limits, unit)
            if present is not None and (value is None or value > present):
                known[unit] = value
        self.limits = Budget.model_validate({**self.limits.model_dump(), **known})


class Still:
    """The periods during which a run was idle: paused, or without a process working on it."""

    def __init__(self) -> None:
        self._times: list[tuple[datetime, datetime]] = []
        self._paused: datetime | None = None
        self._last: datetime | None = None

    def account(self, event: Event) -> None:
        at = datetime.fromisoformat(event.at)
        if event.kind == RunPaused.kind:
            self._paused = self._paused or at
        elif event.kind in (RunResumed.kind, RunForked.kind):
            since = self._paused or self._last  # a resume without a preceding pause follows an interruption
            if since is not None and at > since:
                self._times.append((since, at))
            self._paused = None
        if event.agent != "person":  # people may add events even while no process works on the run
            self._last = at

    def between(self, begin: datetime, end: datetime) -> float:
        """Returns the number of idle seconds in the given period."""
        return sum(max((min(end, until) - max(begin, since)).total_seconds(), 0.0) for since, until in self._times)


def seconds_worked(events: Sequence[Event]) -> float:
    """Returns the running time according to a trace: the last recorded value plus the time from that record to the last event."""
    seconds, since, before = 0.0, None, None
    for event in events:
        at = datetime.fromisoformat(event.at)
        if (counted := event.of(BudgetUpdated)) is not None:
            seconds, since = float(counted.spent["seconds"]), at
        elif event.kind in (RunStarted.kind, RunResumed.kind, RunPaused.kind, RunForked.kind):
            until = at if event.kind == RunPaused.kind else before  # a resume without a preceding pause follows an interruption
            seconds += (until - since).total_seconds() if since and until else 0.0
            since = None if event.kind == RunPaused.kind else at
        if event.agent != "person":  # people may add events hours after the process has ended
            before = at
    return seconds + ((before - since).total_seconds() if since and before else 0.0)
