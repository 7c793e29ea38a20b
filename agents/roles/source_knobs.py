"""Tunable numbers in a program that a model wrote: named constants for launch shape and tiling, which are found and changed in the source text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from agents.roles.situation import Knob

# Constants are matched by name, because nothing else distinguishes a tuning constant from a dimension of the task.
_WORDS = "BLOCK|THREADS|TILE|UNROLL|VEC|VECTOR|ITEMS|WARPS|STAGES|CHUNK|WIDTH|NUM_WARPS|NUM_STAGES|PER_THREAD|PER_BLOCK"
_NAME = rf"(?P<name>(?:[A-Za-z0-9]+_)*(?:{_WORDS})(?:_[A-Za-z0-9]+)*)"
_INTEGER = r"(?:unsigned\s+)?(?:int|long|size_t|unsigned|int64_t|uint32_t)"
_PLACES = [
    re.compile(pattern, re.MULTILINE | re.IGNORECASE)
    for pattern in (
        rf"^[ \t]*(?:static\s+)?(?:constexpr|const)\s+(?:static\s+)?{_INTEGER}\s+{_NAME}\s*=\s*(?P<value>\d+)\s*;",
        rf"^[ \t]*#[ \t]*define[ \t]+{_NAME}[ \t]+\(?(?P<value>\d+)\)?[ \t]*(?://.*|/\*.*)?$",
        rf"^{_NAME}[ \t]*(?::[ \t]*[\w.]+[ \t]*)?=[ \t]*(?P<value>\d+)[ \t]*(?:#.*)?$",
    )
]
LARGEST = 4096
STEPS = 2  # number of halvings and doublings on each side


def knobs(source: str) -> list[Knob]:
    """Returns the constants whose names mark them as tunable and whose values are powers of two, each with neighbouring powers of two as other
    values."""
    found: dict[str, list[int]] = {}
    for place in _places(source):
        found.setdefault(place["name"], []).append(int(place["value"]))
    return [Knob(name, around(values[0]), values[0]) for name, values in found.items() if len(values) == 1 and power_of_two(values[0])]


def tuned(source: str, values: Mapping[str, int]) -> str | None:
    """Returns the source with other values for these constants, or None if one of them is missing."""
    for name, value in values.items():
        places = [place for place in _places(source) if place["name"] == name]
        if len(places) != 1:
            return None
        start, end = places[0].span("value")
        source = f"{source[:start]}{value}{source[end:]}"
    return source


def around(value: int) -> tuple[int, ...]:
    near = [value >> step for step in range(STEPS, 0, -1)] + [value << step for step in range(STEPS + 1)]
    return tuple(dict.fromkeys(n for n in near if 1 <= n <= LARGEST))


def power_of_two(value: int) -> bool:
    return 0 < value <= LARGEST and value & (value - 1) == 0


def _places(source: str) -> Iterator[re.Match[str]]:
    for pattern in _PLACES:
        yield from pattern.finditer(source)
