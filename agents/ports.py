"""The engine's interfaces to the outside world. `agents` provides a file journal and a local verifier; `webapp` provides Postgres and the queue."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from agents.events import ArtefactRef, Event, NewEvent
from agents.llm.messages import Delta, Reply, Request
from verifier.jobs import Job, JobResult


class LeaseLost(RuntimeError):
    """Raised if another orchestrator now owns the run. The caller must stop without writing anything more."""


class Journal(Protocol):
    """The trace of one run."""

    run: str

    async def load(self) -> list[Event]:
        """Returns all events so far, in order."""

    async def append(self, events: Sequence[NewEvent]) -> list[Event]:
        """Appends atomically. Raises `LeaseLost` if this writer's lease epoch is out of date."""

    async def since(self, seq: int) -> list[Event]:
        """Returns the events after `seq`, including those from other writers (job stages, a person's control requests or notes)."""

    def wakeups(self) -> AsyncIterator[None]:
        """Yields whenever there may be new events. This is only a hint, backed up by slow polling."""

    async def put(self, data: bytes, media_type: str, name: str = "") -> ArtefactRef: ...

    async def get(self, sha: str) -> bytes: ...


class VerifierPort(Protocol):
    """Runs jobs for one run. `key` is the effect's journal key. A repeated call with the same key must not run the job twice.

    The port, or the verifier behind it, appends `verification.queued`, `verification.stage` and `verification.finished` to the run's trace, under
    `span`. The last of these contains a reference to the artefact with the report or profile.

    A port may also have `async def describe() -> dict`, which returns known figures of the device for the plan (`threads`, `device_name`,
    `multiprocessors`, `l2_bytes`, `capability`, `bandwidth_gbs`, ... as read by `DeviceFigures.of`), and `async def missing() -> str`, which says why
    the device cannot be used from here, or returns "" if it can. If the device cannot be used, a run that began elsewhere waits for it instead of
    ending.
    """

    device: str

    async def run(self, job: Job, *, key: str, span: str, candidate: str | None = None) -> JobResult: ...


@dataclass(frozen=True)
class Passage:
    """A passage of a document that somebody added to the installation's knowledge."""

    id: str
    title: str
    text: str


class Library(Protocol):
    """Documents that a diagnosis may cite."""

    async def search(self, query: str, count: int) -> list[Passage]:
        """Returns the passages that best match the query in a full-text search, best match first."""


class KnownModels(Protocol):
    def known(self, profile: str) -> bool:
        """Returns whether the profile is configured here."""


class ModelPort(KnownModels, Protocol):
    """Sends requests to language models, which are identified by profile name (`agents.llm`).

    A port may also have `def keeps(profile) -> bool`, which says whether requests to the profile stay pending across interruptions. Such a request is
    sent again verbatim, even if notes have arrived in the meantime.
    """

    def estimate(self, profile: str, request: Request) -> dict[str, float]:
        """Returns the maximum cost of a call in budget units (`calls`, `tokens`, and `dollars` if prices are known), for the reservation."""

    async def ask(self, profile: str, request: Request, *, key: str, run: str, on_delta: Callable[[Delta], Awaitable[None]]) -> Reply:
        """Returns one reply, streamed. Raises `ModelFailure` when the profile's own retries are exhausted. `key` and `run` identify requests that
        wait for a person (mailbox) and those whose replies are played from a recording. After a retry, the text starts over, and `on_delta` receives
        only what extends the text that it already has. If the new text differs, the full reply replaces it at the end."""
