"""Forks. A fork is a run that inherits another run's events up to a given event and continues with other settings.

The new run's journal contains the parent's events, unchanged and with their original numbers, followed by `run.forked`. The new run's replay cannot
diverge, because the workflow replays the inherited events under the settings in effect when they were written (`Engine.settings`), so every decision
that depends on settings has the same result. While a span still has inherited events to replay, its role calls go to the role that originally handled
them. An exchange with a model, or a small effect, is void if it has not yet led to an event in its span (`agents.replay`); the roles of the new
settings repeat it. Measurements are kept, so device, precision and mode cannot change.
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

COMMON = ("", "admit", "capture", "reference")  # every workflow begins with these spans, so a different workflow can take them over
FIXED = ("device", "precision", "mode")


class ForkRefused(ValueError):
    """Raised if a fork is not possible. The message says why and what to do."""


def settings_of(events: Sequence[Event]) -> Settings:
    """Returns the settings in effect at the end of a trace, including any budget increases. Raises `ForkRefused` if the run has not begun."""
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
    """Returns (seq, settings) pairs in order, one for `run.started` and one for each `run.forked`. The list is empty if the run has not begun."""
    found: list[tuple[int, Settings]] = []
    for event in events:
        if event.kind == RunStarted.kind:
            found.append((event.seq, Settings.model_validate(event.payload)))
        elif (fork := event.of(RunForked)) is not None:
            found.append((event.seq, settings_of_fork(fork)))
    return found


def former(events: Sequence[Event]) -> list[tuple[int, Settings]]:
    """Returns the earlier settings of a forked run, each with the seq of the fork that replaced them. If a fork changed the workflow, none of the
    events inherited before it involved a role, so these events remain valid under the new settings."""
    history = settings_by_fork(events)
    ended = [(fork, before) for (_, before), (fork, _) in zip(history, history[1:], strict=False)]
    return [(fork, before) for fork, before in ended if before.workflow == history[-1][1].workflow]


def settings_of_fork(fork: RunForked) -> Settings:
    return Settings.model_validate(fork.settings)


def fork(events: Sequence[Event], at: int, settings: Settings, *, by: str, run: str = "") -> tuple[list[Event], NewEvent]:
    """Returns the inherited events under the new run's id, followed by `run.forked`.

    `at` is the last event to inherit. Fewer events are inherited if some of them belong to the end of the parent run or could not be taken over by a
    different workflow.
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
            raise ForkRefused(f"a fork cannot change the {name}: earlier measurements would no longer be valid. Submit a new run instead")
    if not (searches(settings.workflow) and searches(before.workflow)):
        raise ForkRefused("in a run that verifies a person's own program, other settings would change nothing: submit a new run instead")
    if settings.workflow != before.workflow:
        foreign = next((event.seq for event in events[:cut] if event.span not in COMMON), cut + 1)
        cut = foreign - 1
    old, new = (s.model_dump(mode="json") for s in (before, settings))
    changed = {name: new[name] for name in new if new[name] != old[name]}
    forked = RunForked(origin=Origin(run=events[0].run, seq=cut), asked=at, changed=changed, settings=new, by=by)
    return [_inherited(event, run) for event in events[:cut]], NewEvent.of(forked, agent="person")


def refusal(events: Sequence[Event]) -> int | None:
    """Returns the last event before the budget first refused a call, from which a run that is out of budget can continue. Returns None if no call was
    refused."""
    own = next((event.seq for event in reversed(events) if event.kind == RunForked.kind), 0)
    for event in events:
        effect = event.of(EffectCompleted) if event.seq > own else None
        if effect is not None and effect.name == "budget.refused":
            return event.seq - 1
    return None


def _cut(events: Sequence[Event], at: int) -> int:
    """Returns `at`, or the event before those with which the engine closes a run, because a workflow would not reproduce those."""
    for event in events[:at]:
        match event.body:
            case SpanClosed(seconds=None) | RunFinished():
                return event.seq - 1
            case Failure() if not event.span:
                return event.seq - 1
    return at


def _inherited(event: Event, run: str) -> Event:
    said = event.body
    if isinstance(said, Verification) and said.verification:  # the id belongs to the parent run
        own = str(uuid.uuid5(uuid.NAMESPACE_URL, f"stitchwork:{run}:{said.key}"))
        return event.moved(run, {**event.payload, "verification": own})
    return event.moved(run, event.payload)


def roles_in_force(run: Engine, roles_by: Callable[[Settings], Roles]) -> Roles:
    """Returns the roles of a forked run. Each call goes to the role specified by the settings in effect for its span."""
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
