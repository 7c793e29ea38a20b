"""The knowledge that a search over a program's choices has: the choices, a few figures from the plan, and the programs measured so far.

A *choice* is a strategy that is off or on, or a number with several possible values; a *point* contains an index into the values of every choice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Point = tuple[int, ...]
BASES = 4  # moves start from this many of the fastest programs


@dataclass(frozen=True)
class Choice:
    name: str  # "row-cache", "block"
    group: str  # group in the plan; "" for the whole program
    values: tuple[int, ...]
    default: int  # index of the compiler's own choice
    strategy: str  # catalogue name, or the name of a kind of number
    numeric: bool


@dataclass(frozen=True)
class Facts:
    """The facts that are known before any generated program has run. Times are in microseconds. A floor of 0 means that it is unknown."""

    choices: tuple[Choice, ...]
    groups: tuple[str, ...]  # the program's own kernels, in the same order as the shares
    eager_us: float
    floor_us: float

    @property
    def default(self) -> Point:
        return tuple(choice.default for choice in self.choices)

    @cached_property
    def marks(self) -> list[NDArray[np.uint64]]:
        """Returns a fixed random number for each value of each choice. The mark of a point is the XOR of its values' numbers."""
        draw = np.random.default_rng(20261127)
        return [draw.integers(1, 1 << 63, size=len(choice.values), dtype=np.uint64) for choice in self.choices]

    def mark(self, point: Point) -> int:
        found = 0
        for marks, at in zip(self.marks, point, strict=True):
            found ^= int(marks[at])
        return found


@dataclass(frozen=True)
class Tried:
    """One program that was measured, or was found to be incorrect."""

    point: Point
    us: float | None  # None: incorrect
    bottleneck: str = ""
    shares: tuple[float, ...] = ()  # each group's share of the program's time; empty if it was not profiled
    launches: float | None = None


@dataclass
class Search:
    """The state of one search. `budget`: the total number of programs that the search may measure."""

    facts: Facts
    budget: int
    tried: list[Tried] = field(default_factory=list)
    closed: set[int] = field(default_factory=set)  # marks of points to skip, because they or points with the same program have been tried

    def add(self, tried: Tried, alike: Iterable[int] = ()) -> None:
        """Adds a program. `alike`: marks of the points that are known to generate the same program."""
        self.tried.append(tried)
        self.closed.add(self.facts.mark(tried.point))
        self.closed.update(alike)

    def bases(self, most: int | None = BASES) -> list[Tried]:
        """Returns the fastest correct programs, fastest first. If there are none, moves start from the first point that was tried."""
        right = sorted((one for one in self.tried if one.us is not None), key=lambda one: one.us or 0.0)
        return right[:most] or self.tried[:1]
