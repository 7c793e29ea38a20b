"""Recordings of exchanges, one JSON line each, which are looked up by the content of the request.

Identical requests are distinguished by their journal keys and then by their profiles. If neither tells them apart, the n-th request gets the n-th
recorded reply.
"""

from __future__ import annotations

import difflib
import fcntl
import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, Field, ValidationError

from agents.llm.errors import ModelFailure
from agents.llm.messages import Reply, Request
from agents.llm.recalling import recall
from agents.payloads import LlmCompleted, LlmRequested, artefact

if TYPE_CHECKING:
    from agents.ports import Journal  # for type checking only, because `agents.ports` imports this package's `messages`

VERSION = 1


class Exchange(BaseModel):
    """One line of a cassette."""

    v: int = VERSION
    profile: str
    run: str = ""
    key: str = ""
    request: Request
    estimate: dict[str, float] = Field(default_factory=dict)  # the amount reserved for the call, recorded so that a replay takes the same path
    reply: Reply


def fingerprint(request: Request) -> str:
    """Returns a hash of the parts that determine whether two requests are equal: messages, length and temperature. The purpose is excluded because it
    is never sent."""
    asked = request.model_dump(include={"messages", "max_tokens", "temperature"})
    return hashlib.sha256(json.dumps(asked, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


class Cassette:
    """A file of recordings; `refresh` rereads it if it has changed."""

    def __init__(self, path: Path):
        self.path = path
        self.exchanges: list[Exchange] = []
        self._by_request: dict[str, list[Exchange]] = defaultdict(list)
        self._state: tuple[int, int] | None = None  # the file's size and modification time when it was last read
        self._played: dict[tuple[str, str], Exchange] = {}  # exchanges, keyed by run and key; a repeated request gets the same reply
        self._used: dict[str, set[int]] = defaultdict(set)  # indices of the equal exchanges already played, keyed by run and fingerprint
        self.refresh()

    def refresh(self) -> None:
        state = self._now()
        if state == self._state:
            return
        exchanges = read_cassette(self.path)
        if exchanges[: len(self.exchanges)] != self.exchanges:  # this is a different recording, not a longer version of the same one
            self._used.clear()
        self.exchanges, self._state = exchanges, state
        self._by_request.clear()
        for exchange in exchanges:
            self._by_request[fingerprint(exchange.request)].append(exchange)

    def _now(self) -> tuple[int, int] | None:
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_size, found.st_mtime_ns

    def find(self, profile: str, request: Request, *, key: str, run: str) -> Exchange | None:
        """Returns the recording for this request, or None if none is left. Another call with the same key returns the same recording."""
        mark = fingerprint(request)
        played = self._played.get((run, key))
        if played is not None and fingerprint(played.request) == mark:
            return played
        equal = self._by_request.get(mark, [])
        used = self._used[f"{run} {mark}"]
        free = [i for i in range(len(equal)) if i not in used]
        if not free:
            return None
        chosen = min(free, key=lambda i: (equal[i].key != key, equal[i].profile != profile, i))
        used.add(chosen)
        self._played[run, key] = equal[chosen]
        return equal[chosen]

    def look(self, request: Request) -> Exchange | None:
        """Returns any recording for this request without marking it as played."""
        return next(iter(self._by_request.get(fingerprint(request), [])), None)

    def add(self, exchange: Exchange) -> None:
        try:
            append(self.path, [exchange])
        except OSError as error:
            raise ModelFailure(
                "configuration", f"the recording {self.path} cannot be written: {error.strerror}", "correct file in the profile"
            ) from None
        self.refresh()
        mark = fingerprint(exchange.request)
        self._used[f"{exchange.run} {mark}"].add(len(self._by_request[mark]) - 1)
        self._played[exchange.run, exchange.key] = exchange

    def missing(self, profile: str, request: Request) -> ModelFailure:
        """Returns the failure for a request that is not in the recording. The message shows how the nearest recorded request differs."""
        hint = "record it again (record = ... in the cassette's profile), or run the version of the program that recorded it"
        equal = self._by_request.get(fingerprint(request), [])
        if equal:
            said = f"it was requested more often than the {len(equal)} times that are recorded"
        elif not self.exchanges:
            said = "the recording is empty"
        else:
            said = "the nearest recorded one: " + difference(request, nearest(request, self.exchanges))
        purpose = request.purpose or "a request"
        return ModelFailure("configuration", f"profile {profile}: {purpose} is not in the recording {self.path.name}: {said}", hint)


def read_cassette(path: Path) -> list[Exchange]:
    """Returns all exchanges in a file, or none if the file does not exist. Raises `ModelFailure` if it cannot be read."""
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ModelFailure("configuration", f"the recording {path} cannot be read: {error.strerror}", "correct file in the profile") from None
    exchanges = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            exchange = Exchange.model_validate_json(line)
        except ValidationError as error:
            found = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, found["loc"])) or "the line"
            message = f"line {number} of the recording {path} is not an exchange: {place}: {found['msg']}"
            raise ModelFailure("configuration", message, "remove that line, or record again") from None
        if exchange.v != VERSION:
            message = f"line {number} of the recording {path} is of version {exchange.v}, not {VERSION}"
            raise ModelFailure("configuration", message, "record it again")
        exchanges.append(exchange)
    return exchanges


def append(path: Path, exchanges: Sequence[Exchange]) -> None:
    """Appends lines. Processes that record to the same file take turns. If a crash left the last line incomplete, it is terminated first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        size = file.seek(0, os.SEEK_END)
        if size:
            file.seek(size - 1)
            if file.read(1) != b"\n":
                file.write(b"\n")
        file.write(b"".join(exchange.model_dump_json().encode() + b"\n" for exchange in exchanges))
        file.flush()
        os.fsync(file.fileno())


async def exchanges_of(journal: Journal) -> list[tuple[int, Exchange]]:
    """Returns the exchanges of a trace in order of completion, each with the number of its completion event."""
    requested: dict[str, LlmRequested] = {}
    found: list[tuple[int, Exchange]] = []
    for event in await journal.load():
        if (asking := event.of(LlmRequested)) is not None:
            requested[asking.key] = asking
        elif (done := event.of(LlmCompleted)) is not None and done.reply is not None and done.key in requested:
            asked = requested[done.key]
            request = Request.model_validate_json(await journal.get(artefact(asked.request)))
            exchange = Exchange(profile=asked.profile, run=journal.run, key=asked.key, request=request, reply=await recall(journal, done))
            exchange.estimate = asked.estimate
            found.append((event.seq, exchange))
    return found


def nearest(request: Request, exchanges: Sequence[Exchange]) -> Exchange:
    """Returns the recorded request that has the most lines in common with this one, preferably one with the same purpose."""
    same = [e for e in exchanges if e.request.purpose == request.purpose] or list(exchanges)
    lines = _lines(request)
    return max(same, key=lambda e: difflib.SequenceMatcher(None, _lines(e.request), lines, autojunk=False).quick_ratio())


def difference(request: Request, recorded: Exchange) -> str:
    """Describes where a request first differs from a recorded one."""
    of = f"the recorded request ({recorded.request.purpose or 'no purpose'}, {recorded.key or recorded.profile})"
    for name in ("max_tokens", "temperature"):
        if getattr(request, name) != getattr(recorded.request, name):
            return f"{of} has {name} {getattr(recorded.request, name)}, not {getattr(request, name)}"
    asked, was = _lines(request), _lines(recorded.request)
    at = next((i for i, (a, b) in enumerate(zip(asked, was, strict=False)) if a != b), min(len(asked), len(was)))
    then, now = (_show(lines[at]) if at < len(lines) else "nothing" for lines in (was, asked))
    return f"{of} differs first in line {at + 1}: recorded {then}, now {now}"


def _lines(request: Request) -> list[str]:
    return [line for message in request.messages for line in (f"[{message.role}]", *message.content.splitlines())]


def _show(line: str) -> str:
    return repr(line if len(line) <= 120 else line[:117] + "...")
