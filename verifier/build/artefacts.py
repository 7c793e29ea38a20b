"""Libraries of one program, as they travel from a builder to the judge and from there to runners."""

from __future__ import annotations

import re
from dataclasses import dataclass

_NAME = re.compile(r"(?:[A-Za-z0-9_-][A-Za-z0-9_.-]{0,120}/)?[A-Za-z0-9_-][A-Za-z0-9_.-]{0,120}\.so")


@dataclass(frozen=True)
class Artefacts:
    """Libraries of one program: names and sizes, and their bytes one after another."""

    index: list[tuple[str, int]]
    data: bytes
    seconds: float


def checked_index(values: object, total: int) -> list[tuple[str, int]]:
    """Names and sizes as a builder tells them, if they are sound; raises `ValueError`."""
    index: list[tuple[str, int]] = []
    if not isinstance(values, list):
        raise ValueError("the builder's list of libraries is malformed")
    for value in values:
        name, size = value if isinstance(value, list) and len(value) == 2 else ("", -1)
        if not isinstance(name, str) or not _NAME.fullmatch(name) or ".." in name or not isinstance(size, int) or size < 0:
            raise ValueError("the builder names a library in an unsound way")
        index.append((name, size))
    if sum(size for _, size in index) != total:
        raise ValueError("the builder's libraries do not add up")
    return index
