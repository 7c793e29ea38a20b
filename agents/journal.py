"""Traces on disk and in memory. On disk, a trace is a file `trace.jsonl` with one event per line, next to `artefacts/<sha>`.

A directory has one owner at a time. Opening it as the owner increments the number in `lease`. From then on, every append by the previous owner is
refused. Events that people write (control events and notes) can be appended without being the owner.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from agents.events import EVENT_VERSION, MAX_PAYLOAD_BYTES, UNSTORABLE, ArtefactRef, Event, NewEvent, storable
from agents.ports import LeaseLost
from verifier.source import sha256

TRACE = "trace.jsonl"
ARTEFACTS = "artefacts"
LEASE = "lease"
POLL_SECONDS = 0.25


class PayloadTooLarge(ValueError):
    """Raised if a payload exceeds the size limit. Longer data belongs in an artefact."""


class TraceDamaged(ValueError):
    """Raised if a trace cannot be read. The message says where the trace is damaged."""


def encode(payload: dict[str, Any]) -> str:
    """Returns the payload as JSON. Raises `PayloadTooLarge` if it exceeds the size limit."""
    text = json.dumps(payload, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    if "\\u0000" in text or UNSTORABLE.search(text):
        text = json.dumps(storable(payload), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    size = len(text.encode())
    if size > MAX_PAYLOAD_BYTES:
        raise PayloadTooLarge(f"a payload of {size} bytes is over the limit of {MAX_PAYLOAD_BYTES}: put it into an artefact")
    return text


def number(run: str, first: int, events: Sequence[NewEvent]) -> list[Event]:
    """Assigns a run, a seq (counting from `first`) and a time to new events."""
    at = datetime.now(UTC).isoformat(timespec="microseconds")
    return [
        Event(
            v=EVENT_VERSION, run=run, seq=first + i, at=at, span=e.span, parent=e.parent, agent=e.agent, kind=e.kind,
            payload=json.loads(encode(e.payload)),
        )
        for i, e in enumerate(events)
    ]  # fmt: skip


def parse_lines(lines: Iterator[bytes] | Sequence[bytes], after: int = 0) -> list[Event]:
    """Parses events from complete lines. Raises `TraceDamaged` if a line is not an event or a seq is missing."""
    events: list[Event] = []
    for line in lines:
        expected = after + len(events) + 1
        try:
            event = Event.model_validate_json(line)
        except ValueError as error:
            raise TraceDamaged(f"line {expected} of {TRACE} is not an event: {str(error).splitlines()[0]}") from None
        if event.seq != expected:
            raise TraceDamaged(f"line {expected} of {TRACE} has seq {event.seq}: the trace has a gap")
        events.append(event)
    return events


def line_of(event: Event) -> bytes:
    return event.model_dump_json().encode() + b"\n"


def read_trace(folder: Path) -> tuple[list[Event], Iterator[tuple[str, bytes]]]:
    """Returns the events and artefacts (sha, bytes) of a trace directory. Drops an incomplete last line. Raises `TraceDamaged` if an artefact is
    corrupt."""
    data = (folder / TRACE).read_bytes()
    complete = data[: data.rfind(b"\n") + 1]
    return parse_lines(complete.splitlines()), _artefacts(folder)


def _artefacts(folder: Path) -> Iterator[tuple[str, bytes]]:
    if not (folder / ARTEFACTS).is_dir():
        return
    for path in sorted((folder / ARTEFACTS).iterdir()):
        if len(path.name) != 64:
            continue
        data = path.read_bytes()
        if sha256(data) != path.name:
            raise TraceDamaged(f"artefact {path.name} does not have the content that its name states")
        yield path.name, data


def write_trace(folder: Path, events: Sequence[Event], artefacts: Iterator[tuple[str, bytes]] | Sequence[tuple[str, bytes]]) -> None:
    """Writes a trace directory that `read_trace` reads back unchanged. The directory must not contain a trace yet."""
    if (folder / TRACE).exists():
        raise FileExistsError(f"{folder} already holds a trace")
    (folder / ARTEFACTS).mkdir(parents=True, exist_ok=True)
    for sha, data in artefacts:
        (folder / ARTEFACTS / sha).write_bytes(data)
    with (folder / TRACE).open("xb") as file:
        file.writelines(line_of(event) for event in events)
        file.flush()
        os.fsync(file.fileno())


class WithPayload(Protocol):
    @property
    def payload(self) -> Any: ...


def references(events: Sequence[WithPayload]) -> dict[str, ArtefactRef]:
    """Returns every artefact that the events reference, keyed by sha. An export has to include them all."""
    found: dict[str, ArtefactRef] = {}

    def walk(value: object) -> None:
        if isinstance(value, dict):
            if isinstance(value.get("sha"), str) and "media_type" in value and "bytes" in value:
                found.setdefault(value["sha"], ArtefactRef.model_validate(value))
            for item in value.values():
                walk(item)
        elif isinstance(value, list):
            for item in value:
                walk(item)

    for event in events:
        walk(event.payload)
    return found


class MemoryJournal:
    """A trace that exists only as long as its process, for tests and for runs that need not be kept."""

    def __init__(self, run: str = "", events: Sequence[Event] = (), artefacts: dict[str, bytes] | None = None):
        self.events: list[Event] = list(events)
        self.run = run or (self.events[0].run if self.events else str(uuid.uuid4()))
        self.artefacts: dict[str, bytes] = dict(artefacts or {})
        self.epoch = self.current_epoch = 1
        self._changed = asyncio.Event()

    async def load(self) -> list[Event]:
        return list(self.events)

    async def append(self, events: Sequence[NewEvent]) -> list[Event]:
        if self.epoch != self.current_epoch:
            raise LeaseLost(f"run {self.run} has another owner")
        numbered = number(self.run, len(self.events) + 1, events)
        self.events.extend(numbered)
        self._changed.set()
        return numbered

    async def since(self, seq: int) -> list[Event]:
        return self.events[seq:]

    async def wakeups(self) -> AsyncIterator[None]:
        while True:
            await self._changed.wait()
            self._changed.clear()
            yield

    async def put(self, data: bytes, media_type: str, name: str = "") -> ArtefactRef:
        sha = sha256(data)
        self.artefacts[sha] = data
        return ArtefactRef(sha=sha, media_type=media_type, bytes=len(data), name=name)

    async def get(self, sha: str) -> bytes:
        return self.artefacts[sha]


class FileJournal:
    """The trace of one directory. Appends are synchronous and use fsync. Each takes a few hundred microseconds and is never left incomplete."""

    def __init__(self, folder: Path, run: str = "", *, owner: bool = True):
        """Opens or begins a trace. The owner takes the lease and removes a last line that a crash left incomplete."""
        self.folder = folder
        (folder / ARTEFACTS).mkdir(parents=True, exist_ok=True)
        self._path = folder / TRACE
        self._path.touch()
        self._offset = 0  # number of bytes in the complete lines read so far
        self._events: list[Event] = []
        self.on_append: Callable[[], None] = lambda: None  # called on each append through this object before the append returns
        self.epoch: int | None = None
        with self._locked():
            if owner:
                self.epoch = self._lease() + 1
                self._write_lease(self.epoch)
                data = self._path.read_bytes()
                whole = data.rfind(b"\n") + 1
                if whole != len(data):
                    os.truncate(self._path, whole)
            self._read_more()
        self.run = self._events[0].run if self._events else run or str(uuid.uuid4())

    async def load(self) -> list[Event]:
        self._read_more()
        return list(self._events)

    async def append(self, events: Sequence[NewEvent]) -> list[Event]:
        with self._locked():
            if self.epoch is not None and self._lease() != self.epoch:
                raise LeaseLost(f"another process took over {self.folder}")
            self._read_more()
            numbered = number(self.run, len(self._events) + 1, events)
            with self._path.open("ab") as file:
                file.write(b"".join(line_of(event) for event in numbered))
                file.flush()
                os.fsync(file.fileno())
            self._read_more()
        self.on_append()
        return numbered

    async def since(self, seq: int) -> list[Event]:
        return self.events_after(seq)

    def events_after(self, seq: int) -> list[Event]:
        self._read_more()
        return self._events[seq:]

    async def wakeups(self) -> AsyncIterator[None]:
        seen = -1
        while True:
            size = self._path.stat().st_size
            if size != seen:
                seen = size
                yield
            await asyncio.sleep(POLL_SECONDS)

    async def put(self, data: bytes, media_type: str, name: str = "") -> ArtefactRef:
        sha = sha256(data)
        path = self.folder / ARTEFACTS / sha
        if not path.exists():
            scratch = path.with_name(f".{sha}.{os.getpid()}")
            with scratch.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            scratch.replace(path)
        return ArtefactRef(sha=sha, media_type=media_type, bytes=len(data), name=name)

    async def get(self, sha: str) -> bytes:
        if len(sha) != 64 or not sha.isalnum():
            raise ValueError(f"{sha!r} is not the name of an artefact")
        return (self.folder / ARTEFACTS / sha).read_bytes()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with (self.folder / ".lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _lease(self) -> int:
        try:
            return int((self.folder / LEASE).read_text() or 0)
        except FileNotFoundError:
            return 0

    def _write_lease(self, epoch: int) -> None:
        scratch = self.folder / f".{LEASE}.{os.getpid()}"
        scratch.write_text(str(epoch))
        scratch.replace(self.folder / LEASE)

    def _read_more(self) -> None:
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        whole = data.rfind(b"\n") + 1  # another process may still be writing a line
        self._events.extend(parse_lines(data[:whole].splitlines(), after=len(self._events)))
        self._offset += whole
