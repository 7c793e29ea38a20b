"""Resume by replay: the workflow runs again over its own journal, and what stands there is returned instead of being done twice.

Within a span a workflow is sequential, so its n-th event there is the n-th that the engine wrote there; effects are found by their key
`SPAN#n`. Events that others write, or that depend on the clock (stages, control, pauses, deltas, budget), are not part of that order.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Any

from agents.events import Event

BESIDE = frozenset(
    {
        "run.paused", "run.resumed", "message.delta", "note.added", "verification.queued", "verification.stage", "verification.finished",
        "effect.completed", "budget.updated", "control.requested", "llm.requested", "llm.completed", "llm.failed",
        "run.forked", "plan.edited",
    }
)  # fmt: skip

UNSETTLED = frozenset({"llm.requested", "llm.completed", "effect.completed", "message.delta"})


class TraceDiverged(RuntimeError):
    """The workflow does something else than its journal says: another version of it wrote the trace."""


class Replay:
    """What the journal held when the engine began, and the results of effects, those of this session included."""

    def __init__(self, events: Sequence[Event] = ()):
        self._void = void(events)
        self.finished: dict[str, Event] = {}  # verification.finished by key
        self.effects: dict[str, Any] = {}  # effect.completed by key: {"name", "value"}
        self.messages: dict[str, str] = {}  # text already streamed, by message
        self.replied: dict[str, Event] = {}  # llm.completed by key
        self.asked: dict[str, Event] = {}  # llm.requested by key, as long as there is no reply
        self.plans: dict[int, Event] = {}  # plan.edited by seq
        self._resumed = 0  # seq of the last control.requested that resumes
        self._order: dict[str, deque[Event]] = defaultdict(deque)
        self._furthest: dict[str, int] = {}  # number of the last effect that was begun, by span
        for event in events:
            self.absorb(event)
            if event.kind not in BESIDE:
                self._order[event.span].append(event)

    def absorb(self, event: Event) -> None:
        payload = event.payload
        span, _, number = str(payload.get("key") or payload.get("message") or "").rpartition("#")
        if number.isdigit() and event.seq not in self._void:
            self._furthest[span] = max(self._furthest.get(span, 0), int(number))
        if event.kind == "verification.finished":
            self.finished.setdefault(payload["key"], event)
        elif event.kind == "plan.edited":
            self.plans[event.seq] = event
        elif event.kind == "control.requested" and payload.get("action") == "resume":
            self._resumed = event.seq
        elif event.kind == "message.delta":
            said = self.messages.get(payload["message"], "")
            self.messages[payload["message"]] = said[: payload["offset"]] + payload["text"]
        elif event.seq in self._void:
            return
        elif event.kind == "effect.completed":
            self.effects.setdefault(payload["key"], payload)
        elif event.kind == "llm.requested":
            self.asked[payload["key"]] = event
        elif event.kind == "llm.completed":
            self.replied.setdefault(payload["key"], event)
            self.asked.pop(payload["key"], None)

    def approved(self, proposed: int) -> bool:
        """Whether a person let the run go on after that event, before an interruption."""
        return self._resumed > proposed

    def edited(self, proposed: int) -> Event | None:
        """A person's last version of the plan that was proposed there."""
        return next((event for seq, event in sorted(self.plans.items(), reverse=True) if seq > proposed), None)

    def ahead(self, span: str) -> bool:
        """Whether the journal holds a further event of this span."""
        return bool(self._order.get(span))

    def inherited(self, before: int, span: str | None = None) -> bool:
        """Whether the workflow has events ahead, of this span with those below it or of any, that stand before the event `before`."""
        for path, order in self._order.items():
            if order and order[0].seq < before and (span is None or path == span or path.startswith(f"{span}/")):
                return True
        return False

    def passed(self, key: str) -> bool:
        """Whether the journal shows that the workflow went on beyond this effect."""
        span, _, number = key.rpartition("#")
        return self.ahead(span) or self._furthest.get(span, 0) > int(number)

    def next(self, span: str, kind: str) -> Event | None:
        """The recorded event that the workflow is about to write, or null where it is past the journal's end."""
        order = self._order.get(span)
        if not order:
            return None
        event = order.popleft()
        if event.kind != kind:
            raise TraceDiverged(f"event {event.seq} of span {span or 'the run'!r} is {event.kind}, but the workflow is at {kind}")
        return event


def void(events: Sequence[Event]) -> frozenset[int]:
    """Exchanges and small effects that had led to no further event of their span when the run was forked (`agents.forking`), by seq."""
    found: set[int] = set()
    last: dict[str, int] = {}
    for event in events:
        if event.kind == "run.forked":
            found |= {e.seq for e in events[: event.seq] if e.kind in UNSETTLED and e.seq > last.get(e.span, 0)}
        elif event.kind not in BESIDE:
            last[event.span] = event.seq
    return frozenset(found)
