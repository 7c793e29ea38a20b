"""Contract 4: a trace. A run is a gapless, append-only list of events; everything else about it is a projection."""

from __future__ import annotations

import re
from typing import Any, Literal, get_args

from pydantic import BaseModel, Field

EVENT_VERSION = 1
MAX_PAYLOAD_BYTES = 16 * 1024  # more is an artefact
UNSTORABLE = re.compile("[\0\ud800-\udfff]")  # a null character, which Postgres keeps in no text, and half of a surrogate pair, which no UTF-8 has

Kind = Literal[
    "run.started", "run.paused", "run.resumed", "run.forked", "run.finished",
    "span.opened", "span.closed",
    "llm.requested", "llm.completed", "llm.failed",
    "message.delta", "message.completed",
    "note.added",
    "plan.proposed", "plan.edited", "idea.proposed",
    "candidate.proposed",
    "verification.queued", "verification.stage", "verification.finished",
    "profile.attached", "artefact.attached",
    "diagnosis.made", "decision.made",
    "effect.completed",
    "budget.updated", "control.requested", "error",
]  # fmt: skip
KINDS: tuple[str, ...] = get_args(Kind)

Agent = Literal["planner", "coder", "verifier", "engine", "person", ""]

# A run's state is apart from its outcome.
State = Literal["queued", "running", "paused", "finished"]
Outcome = Literal["improved", "matched", "failed", "cancelled", "out_of_budget", "inconclusive"]  # inconclusive: the host was too busy to measure


class ArtefactRef(BaseModel):
    """Content-addressed bytes behind `put/get`."""

    sha: str
    media_type: str  # "text/x-python", "application/json", "application/x-stitchwork-timeline"
    bytes: int
    name: str = ""  # a file name for people


class NewEvent(BaseModel):
    """What a writer hands to `append`; the journal adds run, seq and at."""

    kind: Kind
    span: str = ""  # path of the span it belongs to, e.g. "plan", "step-1/attempt-2"
    agent: Agent = ""
    payload: dict[str, Any] = Field(default_factory=dict)

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
    payload: dict[str, Any] = Field(default_factory=dict)


def storable(value: Any) -> Any:
    """JSON as every journal can keep it: models, compilers and programs may say anything. Character for character, so that places in streamed
    texts stay what they were."""
    if isinstance(value, str):
        return UNSTORABLE.sub("\ufffd", value)
    if isinstance(value, dict):
        return {storable(key): storable(inner) for key, inner in value.items()}
    return [storable(inner) for inner in value] if isinstance(value, (list, tuple)) else value
