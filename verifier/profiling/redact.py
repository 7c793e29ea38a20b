"""Removes information about the host from a tool's output: paths keep only their last part; network addresses and process ids are dropped."""

from __future__ import annotations

import os
import re
import socket
from functools import cache

_PATH = re.compile(r"(?<![\w/.])(?:~|/)?(?:/?[\w.+@%~-]+/)+(?P<last>[\w.+@%~-]*)")
_ADDRESS = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b")
_PROCESS = re.compile(r"\b(process|pid)[ =:]+\d+", re.IGNORECASE)
_VARIABLE = re.compile(r"\b([A-Z][A-Z0-9_]{2,})=(?!=)\S+")


@cache
def _host() -> re.Pattern[str] | None:
    names = {name for name in (socket.gethostname(), os.uname().nodename) if len(name) > 2 and name != "localhost"}
    return re.compile("|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))) if names else None


def redacted(text: str) -> str:
    """Redacts text for reports, artefacts and progress messages. Keeps what a tool reported about the program."""
    text = _PATH.sub(lambda match: match["last"] if match[0].startswith(("/", "~", ".")) else match[0], text)
    text = _ADDRESS.sub("(address)", text)
    text = _PROCESS.sub(r"\1", text)
    text = _VARIABLE.sub(r"\1=...", text)
    host = _host()
    return host.sub("(host)", text) if host is not None else text


def last_lines(text: str, count: int = 4, limit: int = 400) -> str:
    """Joins and redacts the last non-blank lines."""
    return redacted(" / ".join([line.strip() for line in text.splitlines() if line.strip()][-count:]))[:limit]
