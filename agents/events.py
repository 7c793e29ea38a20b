"""Contract 4: a trace. A run is an append-only list of events without gaps; everything else about the run is a projection of that list."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar, cast

from pydantic import BaseModel, Field

from agents.payloads import PAYLOADS, Payload, read
from agents.payloads import ArtefactRef as ArtefactRef

EVENT_VERSION = 1
MAX_PAYLOAD_BYTES = 16 * 1024  # larger payloads become artefacts
UNSTORABLE = re.compile("[\0\ud800-\udfff]")  # null characters, which Postgres text cannot hold, and lone surrogates, which UTF-8 cannot encode

KINDS: tuple[str, ...] = tuple(PAYLOADS)
if TYPE_CHECKING:
    Kind = str
else:
    Kind = Literal[KINDS]  # each kind is declared once, next to its payload (agents/payloads.py)

Agent = Literal["planner", "coder", "verifier", "engine", "person", ""]

# A run's state and its outcome are separate.
State = Literal["queued", "running", "paused", "finished"]
Outcome = Literal["improved", "matched", "failed", "cancelled", "out_of_budget", "inconclusive"]  # inconclusive: the host was too busy to measure


S = TypeVar("S")
E = TypeVar("E", bound="Told")
P = TypeVar("P", bound=Payload)


class NewEvent(BaseModel):
    """An event as a writer passes it to `append`; the journal adds run, seq and at."""

    kind: Kind
    span: str = ""  # path of the span that it belongs to, e.g. "plan", "step-1/attempt-2"
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
    payload: dict[str, Any] = Field(default_factory=dict)  # the payload as it was written; `body` is the typed version

    @cached_property
    def body(self) -> Payload:
        """The typed payload. Raises `ValueError` if the payload does not match its kind."""
        return read(self.kind, self.payload)

    def of(self, payload: type[P]) -> P | None:
        """Returns the typed payload if it is of the given kind, or null otherwise."""
        return cast(P, self.body) if self.kind == payload.kind else None

    def moved(self, run: str, payload: dict[str, Any]) -> Event:
        """Returns a copy of the event for another run, with another payload."""
        values = {name: getattr(self, name) for name in type(self).model_fields}
        return Event(**{**values, "run": run, "payload": payload})


class Told(Protocol):
    """The part of an event that a projection needs; both `Event` and the arena's simulated events (agents/arena) provide it."""

    @property
    def kind(self) -> str: ...

    @property
    def body(self) -> Payload: ...


class Projection(Generic[S, E]):
    """Defines how each kind of event changes a state, with one function per kind that receives the typed payload."""

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
        """Applies the event to the state. Does nothing if no function is registered for its kind."""
        function = self._by_kind.get(event.kind)
        if function is not None:
            function(state, event, event.body)


def storable(value: Any) -> Any:
    """Returns JSON that every journal can store, whatever text models, compilers and programs have printed. Each unsuitable character is replaced by
    exactly one other, so positions in streamed texts remain valid."""
    if isinstance(value, str):
        return UNSTORABLE.sub("\ufffd", value)
    if isinstance(value, dict):
        return {storable(key): storable(inner) for key, inner in value.items()}
    return [storable(inner) for inner in value] if isinstance(value, (list, tuple)) else value
