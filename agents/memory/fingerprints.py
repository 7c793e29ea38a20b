"""Errors that are the same error: what differs between two occurrences (paths, numbers, hashes, addresses, temporary names) is taken out."""

from __future__ import annotations

import hashlib
import re

MOST_LINES = 3  # of a message of many lines, those that name the error
MOST_CHARACTERS = 400
DIGITS = 12  # of the hash

TELLING = re.compile(
    r"\b(error|fatal|undefined|mismatch|illegal|invalid|misaligned|out of (?:memory|bounds)|exception|assert\w*|not (?:found|defined))\b", re.I
)
CAMEL_ERROR = re.compile(r"\b[A-Z]\w*(?:Error|Exception|Warning)\b")

# In this order: what is replaced early is not looked at again.
REPLACED: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\x1b\[[0-9;]*m"), ""),  # colours of a terminal
    (re.compile(r"(?<![\w.])(?:[A-Za-z]:)?(?:[\\/][\w.+@~-]+)+[\\/]([\w.+@~-]+)"), r"\1"),  # a path keeps its last part
    (re.compile(r"\b(?:tmp|temp|cuda_inline|inline_ext|main|ccp?|build)[-_]?(?=\w*\d)(?=\w*[a-zA-Z0-9]{6})\w{6,}\b"), "TEMP"),
    (re.compile(r"\b0[xX][0-9a-fA-F]+\b"), "ADDRESS"),
    (re.compile(r"\b(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{8,}\b"), "HASH"),
    (re.compile(r"[-+]?(?<![\w])\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?:%|(?=\b)|(?=[^\w]))"), "N"),
    (re.compile(r"(?<=_)\d+\b"), "N"),  # kernel_3
    (re.compile(r"(?:\bN\b[\s,x*]*){2,}"), "N "),  # (3, 4, 5) and (7, 8): shapes of any rank
    (re.compile(r"\s+"), " "),
)


def fingerprint(message: str) -> str:
    """The same text for the same error: 12 hexadecimal digits."""
    return hashlib.sha256(normalised(message).encode()).hexdigest()[:DIGITS]


def normalised(message: str) -> str:
    """The lines that name the error, without what differs from one occurrence to the next."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    telling = [line for line in lines if TELLING.search(line) or CAMEL_ERROR.search(line)]
    text = "\n".join(list(dict.fromkeys(map(_plain, (telling or lines)[:20])))[:MOST_LINES])
    return text[:MOST_CHARACTERS]


def _plain(line: str) -> str:
    for pattern, name in REPLACED:
        line = pattern.sub(name, line)
    return line.strip().lower()
