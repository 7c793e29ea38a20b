"""Prints progress to standard error, where nobody is required to read it."""

from __future__ import annotations

import sys
from contextlib import suppress


def say(line: str) -> None:
    with suppress(OSError, ValueError):  # the reader has gone away
        print(line, file=sys.stderr, flush=True)
