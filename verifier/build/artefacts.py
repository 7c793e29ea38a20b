"""The libraries of one program, in the format that a builder sends to the judge and the judge sends to runners."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from typing import Any

_NAME = re.compile(r"(?:[A-Za-z0-9_-][A-Za-z0-9_.-]{0,120}/)?[A-Za-z0-9_-][A-Za-z0-9_.-]{0,120}\.so")
AT_IMPORT = "import"
MAX_FAILURE = 6000  # maximum length of a compiler's output, in characters


@dataclass
class Asked:
    """A build that the program requested. If the build failed, `failure` holds the compiler output, and the program's own request then fails with
    that output."""

    kind: str
    name: str
    key: str
    sha256: str  # covers sources, flags and files
    nbytes: int  # total size of its texts
    when: str = AT_IMPORT  # what the program was doing: "import", "construct", "call"
    line: int | None = None
    seconds: float = 0.0
    failure: str = ""
    request: dict[str, Any] | None = None  # the complete request for a later build, which can then be repeated without the program

    def row(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Artefacts:
    """The libraries of one program: their names, sizes and concatenated bytes, and the builds that the program requested."""

    index: list[tuple[str, int]]
    data: bytes
    seconds: float
    asked: list[Asked] = field(default_factory=list)

    @property
    def failed(self) -> dict[str, str]:
        """Maps the key of each failed request to the reason why it has no library."""
        return {one.key: one.failure for one in self.asked if one.failure}

    @property
    def later(self) -> list[Asked]:
        """Returns the builds that the program requested in a runner."""
        return [one for one in self.asked if one.request is not None]

    def with_more(self, other: Artefacts) -> Artefacts:
        """Merges two objects; if both contain a library of the same name, this object's library takes precedence."""
        known = {name for name, _ in self.index}
        index, parts, at = list(self.index), [self.data], 0
        for name, size in other.index:
            if name not in known:
                index.append((name, size))
                parts.append(other.data[at : at + size])
            at += size
        return Artefacts(index, b"".join(parts), round(self.seconds + other.seconds, 3), [*self.asked, *other.asked])


NONE = Artefacts([], b"", 0.0)  # for a program that builds nothing


def checked_index(values: object, total: int) -> list[tuple[str, int]]:
    """Checks and returns the names and sizes that a builder reports. Raises `ValueError` if they are invalid."""
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


def checked_asked(values: object, most: int = 64) -> list[Asked]:
    """Validates the list of requested builds that a builder or a store entry supplies. Raises `ValueError`."""
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise ValueError("the list of requested builds is malformed")
    return [_asked(value) for value in values[:most]]


def _asked(value: dict[str, Any]) -> Asked:
    def text(name: str, most: int) -> str:
        found = value.get(name, "")
        if not isinstance(found, str):
            raise ValueError(f"{name} of a build is not text")
        return found[:most]

    line, seconds, nbytes, request = value.get("line"), value.get("seconds", 0.0), value.get("nbytes"), value.get("request")
    if not isinstance(seconds, (int, float)) or not isinstance(nbytes, int) or not (request is None or isinstance(request, dict)):
        raise ValueError("the account of a build is malformed")
    asked = Asked(text("kind", 20), text("name", 200), text("key", 64), text("sha256", 64), nbytes, text("when", 20) or AT_IMPORT)
    asked.line = line if isinstance(line, int) and not isinstance(line, bool) else None
    asked.seconds, asked.failure, asked.request = round(float(seconds), 3), text("failure", MAX_FAILURE), request
    return asked
