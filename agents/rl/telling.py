"""Prints progress to standard error, and continues if nothing reads it."""

from __future__ import annotations

import sys
from contextlib import suppress


def say(line: str) -> None:
    with suppress(OSError, ValueError):  # the reader has closed the pipe
        print(line, file=sys.stderr, flush=True)
