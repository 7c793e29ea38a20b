"""Server-sent events: turns bytes into the data of complete events (WHATWG HTML, 9.2.6: "Interpreting an event stream")."""

from __future__ import annotations

import codecs

LONGEST_EVENT = 8 << 20  # characters


class EventTooLong(ValueError):
    """Raised if an event never ends, in which case the input is not an event stream."""


class EventStream:
    """Parses bytes as they arrive, split at any position. Handles comments, other fields and all three kinds of line endings."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")(errors="replace")
        self._line = ""
        self._after_cr = False
        self._data: list[str] = []
        self._size = 0

    def feed(self, data: bytes, final: bool = False) -> list[str]:
        """Returns the `data` of each event that is now complete. `final`: the connection has ended, so an event that lacks only its blank line counts
        as complete."""
        text = self._decoder.decode(data, final)
        if self._after_cr and text:
            text, self._after_cr = text.removeprefix("\n"), False
        self._after_cr = self._after_cr or text.endswith("\r")
        lines = (self._line + text.replace("\r\n", "\n").replace("\r", "\n")).split("\n")
        self._line = lines.pop()
        if len(self._line) + self._size > LONGEST_EVENT:
            raise EventTooLong(f"an event of more than {LONGEST_EVENT >> 20} MiB")
        events: list[str] = []
        for line in lines:
            self._take(line, events)
        if final:
            self._take(self._line, events)
            self._take("", events)
            self._line = ""
        return events

    def _take(self, line: str, events: list[str]) -> None:
        if not line:
            if self._data:
                events.append("\n".join(self._data))
            self._data, self._size = [], 0
            return
        field, _, value = line.partition(":")
        if field == "data":  # a line that begins with a colon is a comment, because its field name is empty
            value = value.removeprefix(" ")
            self._data.append(value)
            self._size += len(value)
