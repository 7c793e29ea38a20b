"""A viewer's selection. It is read from the query string and can be written back to one, so every view of the leaderboard has its own URL."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from urllib.parse import urlencode

from django.http import QueryDict

from verifier.report import CLOCK
from webapp.leaderboard.columns import SORTED

CLASSES = {
    "": "custom + mixed",
    "custom": "custom only",
    "mixed": "mixed only",
    "any": "any, also orchestration",
}
SOLVING = {"": ("custom", "mixed"), "custom": ("custom",), "mixed": ("mixed",), "any": ("custom", "mixed", "orchestration", "")}
AGAINST = {"best": "the best baseline", "eager": "PyTorch eager"}  # an empty value means eager in files and in the API
WHOSE = {"": "ours and published", "ours": "ours", "published": "published"}
EARLIER_CLOCKS = tuple(str(version) for version in range(1, CLOCK))
LEAST_P, MOST_P = 0.0, 1000.0
MANY = "~"  # in a URL: no suite, because an empty value means the default suite


@dataclass(frozen=True)
class Filters:
    """The selection. Empty values stand for the default: the combination of device, precision and mode with the most results."""

    suite: str = ""
    device: str = ""
    precision: str = ""
    mode: str = ""
    program_class: str = ""
    workflow: str = ""
    llm: str = ""
    planner: str = ""
    coder: str = ""
    language: str = ""
    whose: str = ""
    clock: str = ""  # an earlier version of the verifier's clock; empty for the current one
    against: str = ""
    p: float = 1.0
    sort: str = ""

    @classmethod
    def read(cls, query: QueryDict) -> Filters:
        """Read the selection. Invalid values are ignored, so a truncated URL still opens the page."""
        said = {name: query.get(NAMES.get(name, name), "").replace("\0", "").strip()[:140] for name in cls.__dataclass_fields__ if name != "p"}
        for name, allowed in (("program_class", CLASSES), ("against", AGAINST), ("whose", WHOSE), ("sort", SORTED)):
            if said[name] not in allowed:
                said[name] = ""
        if said["clock"] not in EARLIER_CLOCKS:
            said["clock"] = ""
        return cls(p=read_p(query.get("p", "")), **said)

    @classmethod
    def of_page(cls, query: QueryDict) -> Filters:
        """Like `read`, but rank against the best measured baseline unless the page's URL specifies another one."""
        said = cls.read(query)
        return said if said.against else replace(said, against="best")

    def plain(self) -> dict[str, str]:
        """Return only the values that differ from the default, keyed by their names in the URL."""
        usual = Filters()
        found = {NAMES.get(name, name): getattr(self, name) for name in self.__dataclass_fields__ if getattr(self, name) != getattr(usual, name)}
        return {name: f"{value:g}" if isinstance(value, float) else value for name, value in found.items()}

    @property
    def query(self) -> str:
        return urlencode(self.plain())

    @property
    def narrowed(self) -> bool:
        """Return whether any filter is set that could exclude all results."""
        return self != replace(Filters(), p=self.p, sort=self.sort, against=self.against)

    def solves(self, program_class: str) -> bool:
        return program_class in SOLVING[self.program_class]


NAMES = {"program_class": "class"}  # fields whose name in the URL differs from that in the code


def read_p(text: str) -> float:
    try:
        value = float(text or 1.0)
    except ValueError:
        return 1.0
    return round(value, 3) if LEAST_P <= value <= MOST_P else 1.0


def is_uuid(text: str) -> bool:
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True
