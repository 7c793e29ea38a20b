"""Recognises repeated errors by removing everything that varies between occurrences: paths, numbers, hashes, addresses, temporary names."""

from __future__ import annotations

import hashlib
import re

MOST_LINES = 3  # maximum number of error lines kept from a multi-line message
MOST_CHARACTERS = 400
DIGITS = 12  # digits in the hash

TELLING = re.compile(
    r"\b(error|fatal|undefined|mismatch|illegal|invalid|misaligned|out of (?:memory|bounds)|exception|assert\w*|not (?:found|defined))\b", re.I
)
CAMEL_ERROR = re.compile(r"\b[A-Z]\w*(?:Error|Exception|Warning)\b")

# The order matters: each pattern is applied to the output of the previous one.
REPLACED: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\x1b\[[0-9;]*m"), ""),  # terminal colours
    (re.compile(r"(?<![\w.])(?:[A-Za-z]:)?(?:[\\/][\w.+@~-]+)+[\\/]([\w.+@~-]+)"), r"\1"),  # only the last part of a path is kept
    (re.compile(r"\b(?:tmp|temp|cuda_inline|inline_ext|main|ccp?|build)[-_]?(?=\w*\d)(?=\w*[a-zA-Z0-9]{6})\w{6,}\b"), "TEMP"),
    (re.compile(r"\b0[xX][0-9a-fA-F]+\b"), "ADDRESS"),
    (re.compile(r"\b(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{8,}\b"), "HASH"),
    (re.compile(r"[-+]?(?<![\w])\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?:%|(?=\b)|(?=[^\w]))"), "N"),
    (re.compile(r"(?<=_)\d+\b"), "N"),  # kernel_3
    (re.compile(r"(?:\bN\b[\s,x*]*){2,}"), "N "),  # (3, 4, 5) and (7, 8): shapes of any rank
    (re.compile(r"\s+"), " "),
)


def fingerprint(message: str) -> str:
    """Returns 12 hexadecimal digits that are the same for the same error."""
    return hashlib.sha256(normalised(message).encode()).hexdigest()[:DIGITS]


def normalised(message: str) -> str:
    """Returns the lines that name the error, with everything that varies between occurrences removed."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    telling = [line for line in lines if TELLING.search(line) or CAMEL_ERROR.search(line)]
    text = "\n".join(list(dict.fromkeys(map(_plain, (telling or lines)[:20])))[:MOST_LINES])
    return text[:MOST_CHARACTERS]


def _plain(line: str) -> str:
    for pattern, name in REPLACED:
        line = pattern.sub(name, line)
    return line.strip().lower()
