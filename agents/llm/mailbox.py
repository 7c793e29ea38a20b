"""Requests that wait for a person. Each one is put in a mailbox and stays there until somebody adds a reply.

The file mailbox writes each request as `RUN/REQUEST.json` and, for reading and copying, as `REQUEST.md`. It accepts `REQUEST.reply.md` (or
`.reply.txt`) as the reply. A web page does the same through another `MailboxStore`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from pydantic import BaseModel

from agents.llm.errors import Asked, ModelFailure
from agents.llm.messages import Delta, Reply, Request

POLL_SECONDS = 1.0
LOOKS = 2  # number of times an existing reply is checked, because a file counts only once it has stopped growing
LONGEST_REPLY = 4 << 20  # bytes
REPLY_ENDS = (".reply.md", ".reply.txt")


class Waiting(BaseModel):
    """A pending request. The `id` stays the same if the same run repeats the same request."""

    id: str
    run: str
    key: str  # journal key of the call
    profile: str
    asked_at: str  # RFC 3339, UTC
    request: Request


class NotWaiting(LookupError):
    """Raised if the request is no longer pending because it has been answered or the run was cancelled."""


class MailboxStore(Protocol):
    """A store may also define `def hint(id) -> str`, which explains how to reply and how to resume the run if no process is waiting for the reply."""

    async def put(self, waiting: Waiting) -> None:
        """Posts a request. Repeating the call has no effect, even after the reply has arrived."""

    async def list(self, run: str | None = None) -> list[Waiting]:
        """Returns the pending requests of one run or of all runs, oldest first."""

    async def answer(self, id: str, text: str) -> None:
        """Stores a person's reply. Raises `NotWaiting`."""

    async def reply(self, id: str) -> str | None:
        """Returns the reply, or None if there is none yet. The reply is kept, so it can be read again after a crash."""

    async def withdraw(self, id: str) -> None:
        """Cancels and removes the request. Has no effect if the request already has a reply."""


def waiting_for(profile: str, request: Request, *, key: str, run: str) -> Waiting:
    digest = hashlib.sha256(f"{run}\n{key}\n{profile}\n{request.model_dump_json()}".encode()).hexdigest()[:12]
    readable = _slug(key)[:80]
    at = datetime.now(UTC).isoformat(timespec="seconds")
    return Waiting(id=f"{_slug(run)[:64]}/{readable}-{digest}", run=run, key=key, profile=profile, asked_at=at, request=request)


async def ask(
    store: MailboxStore, profile: str, request: Request, *, key: str, run: str, on_delta: Callable[[Delta], Awaitable[None]], wait: bool = True
) -> Reply:
    """Waits indefinitely until a person has replied. If the call is cancelled, the request is withdrawn. If `wait` is off and there is no
    reply yet, the request stays in the mailbox and `Asked` is raised."""
    waiting = waiting_for(profile, request, key=key, run=run)
    try:
        await store.put(waiting)
        looks = 0
        while (text := await store.reply(waiting.id)) is None:
            if looks == LOOKS and not wait:
                break
            looks += 1
            await asyncio.sleep(POLL_SECONDS if wait else POLL_SECONDS / 4)
    except asyncio.CancelledError:
        with contextlib.suppress(OSError, ModelFailure):
            await asyncio.shield(store.withdraw(waiting.id))
        raise
    if text is None:
        raise Asked(
            f"{request.purpose or 'a request'} waits for its reply as {waiting.id}",
            hint(waiting.id) if (hint := getattr(store, "hint", None)) else "",
            waiting.id,
        )
    await on_delta(Delta(text=text))
    return Reply(text=text, model="a person", finish="stop")


class FileMailbox:
    """A mailbox in a folder. A reply may be saved in several steps, so its file counts only once it has stopped growing."""

    def __init__(self, folder: Path, run: Path | None = None):
        """`run`: the directory of the only run whose requests are stored here."""
        self.folder, self.run = folder, run
        self._seen: dict[str, tuple[int, int]] = {}  # size and modification time of a reply file at the last check

    async def put(self, waiting: Waiting) -> None:
        path = self._path(waiting.id)
        if path.with_name(path.name + ".json").exists():
            return
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write(path.with_name(path.name + ".md"), page_of(waiting))
            _write(path.with_name(path.name + ".json"), waiting.model_dump_json(indent=1))
        except OSError as error:
            raise self._unusable(error) from None

    async def list(self, run: str | None = None) -> list[Waiting]:
        found = []
        for path in self.folder.glob("*/*.json") if run is None else self.folder.glob(f"{_slug(run)[:64]}/*.json"):
            with contextlib.suppress(OSError, ValueError):  # withdrawn in the meantime, or not one of our files
                waiting = Waiting.model_validate_json(path.read_bytes())
                if self._reply_file(waiting.id) is None:
                    found.append(waiting)
        return sorted(found, key=lambda w: (w.asked_at, w.id))

    async def answer(self, id: str, text: str) -> None:
        path = self._path(id)
        if not path.with_name(path.name + ".json").exists() or self._reply_file(id) is not None:
            raise NotWaiting(f"{id} no longer waits for a reply")
        _write(path.with_name(path.name + REPLY_ENDS[0]), text)

    async def reply(self, id: str) -> str | None:
        path = self._reply_file(id)
        if path is None:
            return None
        try:
            found = path.stat()
            size = (found.st_size, found.st_mtime_ns)
            if found.st_size == 0 or self._seen.get(id) != size:
                self._seen[id] = size
                return None
            if found.st_size > LONGEST_REPLY:
                raise ModelFailure("protocol", f"the reply in {path.name} is longer than {LONGEST_REPLY >> 20} MiB", "put a shorter one there")
            text = path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
        except UnicodeDecodeError as error:
            raise ModelFailure("protocol", f"byte {error.start + 1} of {path.name} is not UTF-8", "save the reply as UTF-8 text") from None
        except OSError as error:
            raise self._unusable(error) from None
        return text if text.strip() else None

    async def withdraw(self, id: str) -> None:
        if self._reply_file(id) is not None:
            return
        path = self._path(id)
        for end in (".json", ".md"):
            path.with_name(path.name + end).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            path.parent.rmdir()

    def hint(self, id: str) -> str:
        name = id.rpartition("/")[2]
        if self.run is None:
            return f"put the reply into {self._path(id)}{REPLY_ENDS[0]}, then resume the run"
        page = self._path(id).with_name(f"{name}.md")
        return f"read {page}, reply by `python -m agents answer {self.run} {name} < REPLY`, and continue with solve and --resume"

    def _path(self, id: str) -> Path:
        if not re.fullmatch(r"[A-Za-z0-9._-]+/[A-Za-z0-9._-]+", id) or ".." in id:
            raise NotWaiting(f"{id!r} is no request")
        return self.folder / id

    def _reply_file(self, id: str) -> Path | None:
        path = self._path(id)
        return next((p for end in REPLY_ENDS if (p := path.with_name(path.name + end)).exists()), None)

    def _unusable(self, error: OSError) -> ModelFailure:
        hint = "make the folder writable for the user that the orchestrator runs as"
        return ModelFailure("configuration", f"the mailbox {self.folder} cannot be used: {error.strerror}", hint)


def page_of(waiting: Waiting) -> str:
    """Returns the request as a page for a person: instructions, followed by the prompt to copy, with the system text first."""
    name = waiting.id.rpartition("/")[2]
    prompt = "\n\n".join(m.content if m.role != "assistant" else f"(the reply before)\n\n{m.content}" for m in waiting.request.messages)
    return (
        f"<!-- {waiting.request.purpose or 'a request'} of run {waiting.run}, {waiting.key}. Copy what is below this line into a chat,\n"
        f"     and put the whole reply into {name}{REPLY_ENDS[0]} next to this file. -->\n\n{prompt}\n"
    )


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-") or "run"


def _write(path: Path, text: str) -> None:
    """Writes the file atomically."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    with scratch.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(path)
