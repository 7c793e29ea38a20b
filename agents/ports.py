"""What the engine needs from the world. `agents` brings a file journal and a local verifier; `webapp` brings Postgres and the queue."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from agents.events import ArtefactRef, Event, NewEvent
from agents.llm.messages import Delta, Reply, Request
from verifier.jobs import Job, JobResult


class LeaseLost(RuntimeError):
    """Another orchestrator owns the run now: stop without writing another word."""


class Journal(Protocol):
    """The trace of one run."""

    run: str

    async def load(self) -> list[Event]:
        """All events so far, in order."""

    async def append(self, events: Sequence[NewEvent]) -> list[Event]:
        """Append atomically; raises `LeaseLost` where this writer's lease epoch is old."""

    async def since(self, seq: int) -> list[Event]:
        """Events after `seq`: also what others wrote (stages of a job, a person's control or note)."""

    def wakeups(self) -> AsyncIterator[None]:
        """Yields when there may be new events: a hint, with a slow poll beneath it."""

    async def put(self, data: bytes, media_type: str, name: str = "") -> ArtefactRef: ...

    async def get(self, sha: str) -> bytes: ...


class VerifierPort(Protocol):
    """Runs jobs for one run. `key` is the effect's journal key: asking again under the same key must not verify twice.

    The port, or the verifier behind it, appends `verification.queued`, `verification.stage` and `verification.finished` to the run's
    trace with `span`; the report or profile is an artefact named by the last of them.

    A port may also have `async def describe() -> dict`: what is known of the device (`threads`, `device_name`, `multiprocessors`, `l2_bytes`,
    `capability`, `bandwidth_gbs`, ... as `DeviceFigures.of` reads them), for the plan; and `async def missing() -> str`: why the device cannot be
    used from here, empty where it can: a run that began elsewhere waits for its device then, and does not end for want of it.
    """

    device: str

    async def run(self, job: Job, *, key: str, span: str, candidate: str | None = None) -> JobResult: ...


@dataclass(frozen=True)
class Passage:
    """A piece of a document that somebody added to the installation's knowledge."""

    id: str
    title: str
    text: str


class Library(Protocol):
    """Documents that a diagnosis may cite."""

    async def search(self, query: str, count: int) -> list[Passage]:
        """Passages nearest to the query by full-text search, best first."""


class ModelPort(Protocol):
    """Asks language models by the name of their profile (`agents.llm`).

    A port may also have `def keeps(profile) -> bool`: whether requests to it wait for their replies over interruptions, so that one is asked
    again word for word, whatever was noted meanwhile.
    """

    def known(self, profile: str) -> bool:
        """Whether the profile is configured here."""

    def estimate(self, profile: str, request: Request) -> dict[str, float]:
        """What a call may cost at most, in units of the budget (`calls`, `tokens`, `dollars` where prices are known): for the reservation."""

    async def ask(self, profile: str, request: Request, *, key: str, run: str, on_delta: Callable[[Delta], Awaitable[None]]) -> Reply:
        """One reply, streamed; raises `ModelFailure` after the profile's own retries. `key` and `run` tell apart requests that wait for a
        person (mailbox) or are played from a recording. After a retry the text begins again: `on_delta` is then given only what is new
        beyond the text that it already has, or the reply's text replaces it in the end."""
