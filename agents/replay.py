"""Resumes a run by replay: the workflow runs again on its own journal, which returns the recorded results, so no work is repeated.

Within a span, a workflow is sequential, so its n-th event matches the n-th event that the engine recorded there. Effects are found by their key
`SPAN#n`. Events that are appended by other writers or depend on the clock (stages, control, pauses, deltas, budget) are not part of that order.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence

from agents.events import Event
from agents.payloads import (
    PAYLOADS,
    ControlRequested,
    EffectCompleted,
    LlmCompleted,
    LlmRequested,
    MessageDelta,
    PlanEdited,
    RunForked,
    VerificationFinished,
)

BESIDE = frozenset(kind for kind, payload in PAYLOADS.items() if not payload.in_order)
UNSETTLED = frozenset(payload.kind for payload in (LlmRequested, LlmCompleted, EffectCompleted, MessageDelta))


class TraceDiverged(RuntimeError):
    """Raised if the workflow diverges from its journal, because a different version of it wrote the trace."""


class Replay:
    """The contents of the journal when the engine starts, and the results of effects, including those from this session."""

    def __init__(self, events: Sequence[Event] = ()):
        self._void = void(events)
        self.finished: dict[str, VerificationFinished] = {}  # finished verifications, keyed by effect key
        self.effects: dict[str, EffectCompleted] = {}  # completed effects, keyed by effect key
        self.messages: dict[str, str] = {}  # text streamed so far, keyed by message
        self.replied: dict[str, LlmCompleted] = {}  # replies, keyed by effect key
        self.asked: dict[str, LlmRequested] = {}  # requests without a reply, keyed by effect key
        self.plans: dict[int, PlanEdited] = {}  # edited plans, keyed by seq
        self._resumed = 0  # seq of the last control.requested event that resumed the run
        self._order: dict[str, deque[Event]] = defaultdict(deque)
        self._furthest: dict[str, int] = {}  # number of the last effect begun, keyed by span
        for event in events:
            self.absorb(event)
            if event.kind not in BESIDE:
                self._order[event.span].append(event)

    def absorb(self, event: Event) -> None:
        said = event.body
        span, _, number = said.effect.rpartition("#")
        unsettled = event.seq in self._void
        if number.isdigit() and not unsettled:
            self._furthest[span] = max(self._furthest.get(span, 0), int(number))
        match said:
            case VerificationFinished():
                self.finished.setdefault(said.key, said)
            case PlanEdited():
                self.plans[event.seq] = said
            case ControlRequested(action="resume"):
                self._resumed = event.seq
            case MessageDelta():
                self.messages[said.message] = self.messages.get(said.message, "")[: said.offset] + said.text
            case EffectCompleted() if not unsettled:
                self.effects.setdefault(said.key, said)
            case LlmRequested() if not unsettled:
                self.asked[said.key] = said
            case LlmCompleted() if not unsettled:
                self.replied.setdefault(said.key, said)
                self.asked.pop(said.key, None)

    def approved(self, proposed: int) -> bool:
        """Returns whether a person resumed the run after that event and before any interruption."""
        return self._resumed > proposed

    def edited(self, proposed: int) -> int | None:
        """Returns the seq of a person's latest version of the plan proposed at this point."""
        return next((seq for seq in sorted(self.plans, reverse=True) if seq > proposed), None)

    def ahead(self, span: str) -> bool:
        """Returns whether the journal contains another event of this span."""
        return bool(self._order.get(span))

    def inherited(self, before: int, span: str | None = None) -> bool:
        """Returns whether the workflow still has to replay events that precede event `before`, either in this span and its children or in any
        span."""
        for path, order in self._order.items():
            if order and order[0].seq < before and (span is None or path == span or path.startswith(f"{span}/")):
                return True
        return False

    def passed(self, key: str) -> bool:
        """Returns whether, according to the journal, the workflow got past this effect."""
        span, _, number = key.rpartition("#")
        return self.ahead(span) or self._furthest.get(span, 0) > int(number)

    def next(self, span: str, kind: str) -> Event | None:
        """Returns the recorded event that the workflow is about to write, or None if the workflow is past the end of the journal."""
        order = self._order.get(span)
        if not order:
            return None
        event = order.popleft()
        if event.kind != kind:
            raise TraceDiverged(f"event {event.seq} of span {span or 'the run'!r} is {event.kind}, but the workflow is at {kind}")
        return event


def void(events: Sequence[Event]) -> frozenset[int]:
    """Returns the seqs of the exchanges and small effects that had not led to a further event of their span when the run was forked
    (`agents.forking`)."""
    found: set[int] = set()
    last: dict[str, int] = {}
    for event in events:
        if event.kind == RunForked.kind:
            found |= {e.seq for e in events[: event.seq] if e.kind in UNSETTLED and e.seq > last.get(e.span, 0)}
        elif event.kind not in BESIDE:
            last[event.span] = event.seq
    return frozenset(found)
