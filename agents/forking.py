"""Forks: a run that begins with the events of another, up to one of them, and goes on with other settings from there.

The new run's journal holds the parent's events unchanged, with their numbers, and then `run.forked`. Its replay cannot diverge, because the
workflow passes over the inherited events under the settings by which they were written (`Engine.settings`), and whatever settings decide was
decided there: a role's call belongs to whoever it belonged to as long as its span has inherited events ahead. An exchange with a model, or a small
effect, that had led to no event of its span yet is void (`agents.replay`): it is done again, by the roles of the new settings. What was measured
stays measured, which is why device, precision and mode cannot change.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from agents.budget import Ledger
from agents.choices.workflows import searches
from agents.events import Event, NewEvent
from agents.payloads import ControlRequested, EffectCompleted, Failure, Origin, RunFinished, RunForked, RunStarted, SpanClosed, Verification
from agents.roles.situation import Roles
from agents.settings import Settings
from agents.span import Span

if TYPE_CHECKING:
    from agents.run import Engine

COMMON = ("", "admit", "capture", "reference")  # spans by which all workflows begin: what another workflow can take over
FIXED = ("device", "precision", "mode")


class ForkRefused(ValueError):
    """A fork that is not possible; says why and what to do."""


def settings_of(events: Sequence[Event]) -> Settings:
    """The settings in force at the end of a trace, raised budgets included; raises `ForkRefused` where the run has not begun."""
    history = settings_by_fork(events)
    if not history:
        raise ForkRefused("this run has not begun: submit it again with other settings instead")
    begun, settings = history[-1]
    book = Ledger(settings.budget)
    for event in events:
        asked = event.of(ControlRequested) if event.seq > begun else None
        if asked is not None and asked.action == "raise-budget":
            book.raise_limits(asked.limits)
    return settings.model_copy(update={"budget": book.limits})


def settings_by_fork(events: Sequence[Event]) -> list[tuple[int, Settings]]:
    """(seq, settings) in order: of `run.started` and of each `run.forked`. Empty where the run has not begun."""
    found: list[tuple[int, Settings]] = []
    for event in events:
        if event.kind == RunStarted.kind:
            found.append((event.seq, Settings.model_validate(event.payload)))
        elif (fork := event.of(RunForked)) is not None:
            found.append((event.seq, settings_of_fork(fork)))
    return found


def former(events: Sequence[Event]) -> list[tuple[int, Settings]]:
    """Settings of a forked run before its present ones, each with the seq of the fork that ended it. Where the workflow became another, what
    is inherited asked no role for anything, and holds under the new settings as well."""
    history = settings_by_fork(events)
    ended = [(fork, before) for (_, before), (fork, _) in zip(history, history[1:], strict=False)]
    return [(fork, before) for fork, before in ended if before.workflow == history[-1][1].workflow]


def settings_of_fork(fork: RunForked) -> Settings:
    return Settings.model_validate(fork.settings)


def fork(events: Sequence[Event], at: int, settings: Settings, *, by: str, run: str = "") -> tuple[list[Event], NewEvent]:
    """The inherited events under a new run's id, and the `run.forked` that follows them.

    `at` is the last event that is wanted; fewer are inherited where what follows belongs to the end of the parent, or another workflow could
    not take it over.
    """
    run = run or str(uuid.uuid4())
    if not events or events[0].kind != RunStarted.kind:
        raise ForkRefused("this run has not begun: submit it again with other settings instead")
    if not 1 <= at <= events[-1].seq:
        raise ForkRefused(f"the run has events 1 to {events[-1].seq}, and no event {at}")
    cut = _cut(events, at)
    before = settings_of(events[:cut])
    for name in FIXED:
        if getattr(settings, name) != getattr(before, name):
            raise ForkRefused(f"a fork cannot change the {name}: what was measured would not hold any more. Submit a new run instead")
    if not (searches(settings.workflow) and searches(before.workflow)):
        raise ForkRefused("a run that verifies a person's own program has nothing that other settings could change: submit a new run instead")
    if settings.workflow != before.workflow:
        foreign = next((event.seq for event in events[:cut] if event.span not in COMMON), cut + 1)
        cut = foreign - 1
    old, new = (s.model_dump(mode="json") for s in (before, settings))
    changed = {name: new[name] for name in new if new[name] != old[name]}
    forked = RunForked(origin=Origin(run=events[0].run, seq=cut), asked=at, changed=changed, settings=new, by=by)
    return [_inherited(event, run) for event in events[:cut]], NewEvent.of(forked, agent="person")


def refusal(events: Sequence[Event]) -> int | None:
    """The last event before the budget first refused a call: where a run that ran out of it can be continued. Null: it never did."""
    own = next((event.seq for event in reversed(events) if event.kind == RunForked.kind), 0)
    for event in events:
        effect = event.of(EffectCompleted) if event.seq > own else None
        if effect is not None and effect.name == "budget.refused":
            return event.seq - 1
    return None


def _cut(events: Sequence[Event], at: int) -> int:
    """`at`, or the event before those by which the engine closes a run: a workflow would not come by them again."""
    for event in events[:at]:
        match event.body:
            case SpanClosed(seconds=None) | RunFinished():
                return event.seq - 1
            case Failure() if not event.span:
                return event.seq - 1
    return at


def _inherited(event: Event, run: str) -> Event:
    said = event.body
    if isinstance(said, Verification) and said.verification:  # an identity of the parent's
        own = str(uuid.uuid5(uuid.NAMESPACE_URL, f"stitchwork:{run}:{said.key}"))
        return event.moved(run, {**event.payload, "verification": own})
    return event.moved(run, event.payload)


def roles_in_force(run: Engine, roles_by: Callable[[Settings], Roles]) -> Roles:
    """Roles of a run that was forked: each call goes to the role that the settings name for its span."""
    planner, coder, verifier = (cast(Any, _InForce(run, role, roles_by)) for role in ("planner", "coder", "verifier"))
    return Roles(planner, coder, verifier)


class _InForce:
    def __init__(self, run: Engine, role: str, roles_by: Callable[[Settings], Roles]):
        self._run, self._role, self._roles_by = run, role, roles_by
        self._known: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        if name == "name":
            return self._of(self._run.settings).name

        def call(*arguments: Any, **named: Any) -> Any:
            span = next((a.path for a in arguments if isinstance(a, Span)), None)
            settings = self._run.settings_for(span)
            for argument in arguments:
                if hasattr(argument, "task_source") and hasattr(argument, "settings"):  # the situation
                    argument.settings = settings
            return getattr(self._of(settings), name)(*arguments, **named)

        return call

    def _of(self, settings: Settings) -> Any:
        key = settings.model_dump_json()
        if key not in self._known:
            self._known[key] = getattr(self._roles_by(settings), self._role)
        return self._known[key]
