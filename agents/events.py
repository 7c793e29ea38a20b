"""Contract 4: a trace. A run is a gapless, append-only list of events; everything else about it is a projection."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar, cast

from pydantic import BaseModel, Field

from agents.payloads import PAYLOADS, Payload, read
from agents.payloads import ArtefactRef as ArtefactRef

EVENT_VERSION = 1
MAX_PAYLOAD_BYTES = 16 * 1024  # more is an artefact
UNSTORABLE = re.compile("[\0\ud800-\udfff]")  # a null character, which Postgres keeps in no text, and half of a surrogate pair, which no UTF-8 has

KINDS: tuple[str, ...] = tuple(PAYLOADS)
if TYPE_CHECKING:
    Kind = str
else:
    Kind = Literal[KINDS]  # a kind is written down once, where its payload is (agents/payloads.py)

Agent = Literal["planner", "coder", "verifier", "engine", "person", ""]

# A run's state is apart from its outcome.
State = Literal["queued", "running", "paused", "finished"]
Outcome = Literal["improved", "matched", "failed", "cancelled", "out_of_budget", "inconclusive"]  # inconclusive: the host was too busy to measure


S = TypeVar("S")
E = TypeVar("E", bound="Told")
P = TypeVar("P", bound=Payload)


class NewEvent(BaseModel):
    """What a writer hands to `append`; the journal adds run, seq and at."""

    kind: Kind
    span: str = ""  # path of the span it belongs to, e.g. "plan", "step-1/attempt-2"
    agent: Agent = ""
    payload: dict[str, Any] = Field(default_factory=dict)

    @classmethod
    def of(cls, payload: Payload, span: str = "", agent: Agent = "") -> NewEvent:
        return cls.model_construct(kind=payload.kind, span=span, agent=agent, payload=payload.written())

    @property
    def parent(self) -> str:
        return self.span.rpartition("/")[0]


class Event(BaseModel):
    v: int = EVENT_VERSION
    run: str
    seq: int  # 1, 2, 3, ... without gaps
    at: str  # RFC 3339, UTC, microseconds
    span: str = ""
    parent: str = ""
    agent: Agent = ""
    kind: Kind
    payload: dict[str, Any] = Field(default_factory=dict)  # as it was written; `body` is the same in its type

    @cached_property
    def body(self) -> Payload:
        """What it says, in its type. Raises `ValueError` where that is not what its kind says."""
        return read(self.kind, self.payload)

    def of(self, payload: type[P]) -> P | None:
        """What it says where it is of that kind, else null."""
        return cast(P, self.body) if self.kind == payload.kind else None

    def moved(self, run: str, payload: dict[str, Any]) -> Event:
        """The same event in another run, with another payload."""
        values = {name: getattr(self, name) for name in type(self).model_fields}
        return Event(**{**values, "run": run, "payload": payload})


class Told(Protocol):
    """What a projection needs of an event; `Event` has it, and so has a played one (agents/arena)."""

    @property
    def kind(self) -> str: ...

    @property
    def body(self) -> Payload: ...


class Projection(Generic[S, E]):
    """What each kind of event does to a state: a function a kind, which gets the payload in its type."""

    def __init__(self) -> None:
        self._by_kind: dict[str, Callable[[S, E, Any], None]] = {}

    def on(self, *payloads: type[P]) -> Callable[[Callable[[S, E, P], None]], Callable[[S, E, P], None]]:
        """Registers the function for these kinds."""

        def taken(function: Callable[[S, E, P], None]) -> Callable[[S, E, P], None]:
            self._by_kind.update(dict.fromkeys((payload.kind for payload in payloads), function))
            return function

        return taken

    def __contains__(self, kind: str) -> bool:
        return kind in self._by_kind

    def take(self, state: S, event: E) -> None:
        """Does to the state what the event says; nothing where no function is registered for its kind."""
        function = self._by_kind.get(event.kind)
        if function is not None:
            function(state, event, event.body)


def storable(value: Any) -> Any:
    """JSON as every journal can keep it: models, compilers and programs may say anything. Character for character, so that places in streamed
    texts stay what they were."""
    if isinstance(value, str):
        return UNSTORABLE.sub("\ufffd", value)
    if isinstance(value, dict):
        return {storable(key): storable(inner) for key, inner in value.items()}
    return [storable(inner) for inner in value] if isinstance(value, (list, tuple)) else value
