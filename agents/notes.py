"""Notes that people send to an agent while it works. Each note is included in that role's next prompt, exactly once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from agents.events import Event
from agents.payloads import EffectCompleted, LlmRequested, NoteAdded

MAX_NOTE = 4000  # characters
TO = ("all", "planner", "coder", "verifier")
COMPILER = "built-in"  # the recipient of notes to any role that the compiler plays (`agents.orders`)


class Notes:
    """A projection of the trace: `note.added` adds a note, and `llm.requested` (or the "notes" effect) marks it as delivered to a role.

    A request without a reply does not use up a note: it is sent again with the same key and the same notes.
    """

    def __init__(self) -> None:
        self._notes: dict[int, dict[str, Any]] = {}  # notes, keyed by seq
        self._given: dict[tuple[str, int], str] = {}  # key of the exchange that delivered the note, keyed by (role, seq)
        self._claimed: dict[tuple[str, int], str] = {}  # the same, while the request is still in flight

    def absorb(self, event: Event) -> None:
        match event.body:
            case NoteAdded(to=to, text=text, by=by):
                self._notes[event.seq] = {"seq": event.seq, "to": to, "text": text, "by": by}
            case LlmRequested(key=key, notes=notes):
                self._given.update({(event.agent, seq): key for seq in notes})
            case EffectCompleted(key=key, name="notes", value=value):
                self._given.update({(value["agent"], seq): key for seq in value["notes"]})

    @contextmanager
    def claimed(self, agent: str, key: str, roles: Sequence[str] | None = None) -> Iterator[list[dict[str, Any]]]:
        """Yields the notes for the prompt of `key`, oldest first. Until the block ends, no other prompt of that role gets them. `roles`: all roles
        that the recipient plays."""
        to = {*([agent] if roles is None else roles), "all"}
        mine = [note for seq, note in sorted(self._notes.items()) if note["to"] in to and self._owner(agent, seq) in (None, key)]
        fresh = [(agent, note["seq"]) for note in mine]
        self._claimed.update(dict.fromkeys(fresh, key))
        try:
            yield mine
        finally:
            for claim in fresh:
                self._claimed.pop(claim, None)

    def note(self, seq: int) -> dict[str, Any]:
        return self._notes[seq]

    def text(self, seq: int) -> str:
        note = self._notes[seq]
        return f"{note['by']}: {note['text']}" if note["by"] else note["text"]

    def _owner(self, agent: str, seq: int) -> str | None:
        return self._given.get((agent, seq)) or self._claimed.get((agent, seq))
