"""Text output: colours if the stream is a terminal, tables, and protection against control characters in untrusted text."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Sequence
from typing import IO

CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36"}
# Control characters, the C1 set and marks that change the writing direction. Text from models is printed on people's terminals, so they are removed.
UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def clean(text: object) -> str:
    return UNSAFE.sub("", str(text).replace("\r\n", "\n"))


class Terminal:
    """One output stream. `status` shows a line that the next one replaces, but only on a terminal."""

    def __init__(self, stream: IO[str] | None = None):
        self.stream = stream or sys.stdout
        self.live = self.stream.isatty() and os.environ.get("TERM") != "dumb"
        self.coloured = self.live and not os.environ.get("NO_COLOR")
        self._shown = False

    def paint(self, text: str, *styles: str) -> str:
        if not self.coloured or not styles:
            return text
        return f"\x1b[{';'.join(CODES[style] for style in styles)}m{text}\x1b[0m"

    def line(self, text: str = "") -> None:
        """Prints a line. `text` may contain colours; untrusted text in it must already have been cleaned."""
        self._wipe()
        print(text, file=self.stream, flush=True)

    def status(self, text: str) -> None:
        if not self.live:
            return
        width = shutil.get_terminal_size().columns - 1
        self._wipe()
        self.stream.write(self.paint(text[:width], "dim"))
        self.stream.flush()
        self._shown = True

    def _wipe(self) -> None:
        if self._shown:
            self.stream.write("\r\x1b[K")
            self._shown = False

    def close(self) -> None:
        self._wipe()
        self.stream.flush()


def columns(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Returns a plain table with aligned columns."""
    table = [[clean(cell).replace("\n", " ") for cell in row] for row in rows]
    widths = [max(len(cell) for cell in column) for column in zip(head, *table, strict=True)]
    ruled = ["-" * width for width in widths]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in [list(head), ruled, *table])
