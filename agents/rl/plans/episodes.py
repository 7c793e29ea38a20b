"""A search as an episode on a landscape. The policy sees what a real search would know, chooses a point, and receives a noisy time."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product

import numpy as np

from agents.arena.landscape import PASSED, Landscape, Table
from agents.arena.played_verifier import NOISE
from agents.moving.features import Seen, look
from agents.moving.known import Choice, Facts, Point, Search, Tried

RARE, MORE = 0.05, 5.0  # share of a varied task's values that have a larger effect, and the factor by which the effect is larger


@dataclass(frozen=True, eq=False)
class Course:
    """A landscape prepared for many episodes."""

    landscape: Landscape

    @cached_property
    def facts(self) -> Facts:
        choices = tuple(Choice(a.name, a.group, a.values, a.default, a.strategy or a.name, a.numeric) for a in self.landscape.axes)
        return Facts(choices, self.landscape.groups, self.landscape.eager_us, self.landscape.floor_us)

    @cached_property
    def alike(self) -> dict[int, list[int]]:
        """Returns the marks of all points that generate the same program, keyed by the program's number. Generating code is free, so a search may use
        them."""
        found: dict[int, list[int]] = defaultdict(list)
        points = product(*(range(len(axis.values)) for axis in self.landscape.axes))
        for number, point in zip(self.landscape.program, points, strict=True):
            found[number].append(self.facts.mark(point))
        return found

    @cached_property
    def best(self) -> float:
        """Returns the time of the best known program in microseconds. It is at most that of eager, which needs no program."""
        return min(self.landscape.best_us, self.landscape.eager_us)

    def varied(self, draw: random.Random, most: float) -> Course:
        """Returns a similar task in which each value of each choice randomly adds or saves some time. Points that generate the same program
        still take the same time."""
        landscape, deviation = self.landscape, draw.uniform(0, most)

        def effect() -> float:
            return draw.gauss(0, deviation) * (MORE if draw.random() < RARE else 1.0)

        effects = [np.array([effect() for _ in axis.values]) for axis in landscape.axes]
        total = effects[0] if effects else np.zeros(1)
        for more in effects[1:]:
            total = np.add.outer(total, more)
        first: dict[int, float] = {}
        factors = [first.setdefault(number, math.exp(log)) for number, log in zip(landscape.program, total.ravel().tolist(), strict=True)]
        us = [None if time is None else time * factor for time, factor in zip(landscape.us, factors, strict=True)]
        made = Course(replace(landscape, us=us))
        made.__dict__.update(facts=self.facts, alike=self.alike)  # neither depends on times
        return made

    def drawn(self, draw: random.Random) -> Point:
        """Returns a random point with a correct program."""
        right = [index for index, status in enumerate(self.landscape.status) if status == PASSED]
        return self.landscape.point(draw.choice(right))

    def time(self, point: Point) -> float | None:
        """Returns the time from the table, or None if the program is not correct."""
        index = self.landscape.index(point)
        return self.landscape.us[index] if self.landscape.status[index] == PASSED else None

    def near(self, point: Point) -> float | None:
        """Returns the shortest time in the table among the programs that are one change away."""
        if point not in self._near:
            landscape, index = self.landscape, self.landscape.index(point)
            there = [index + (value - point[axis]) * landscape.strides[axis] for axis, value in landscape.neighbours(point)]
            times = [us for one in there if landscape.status[one] == PASSED and (us := landscape.us[one]) is not None]
            self._near[point] = min(times, default=None)
        return self._near[point]

    @cached_property
    def _near(self) -> dict[Point, float | None]:
        return {}


@dataclass
class Episode:
    """One search; its first program is the compiler's own. `shares`: the share of the best known speed reached after each program."""

    course: Course
    seed: str
    budget: int
    start: Point | None = None  # the starting point; None: the compiler's own choice
    search: Search = field(init=False)
    shares: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        facts = self.course.facts
        if self.start is not None:
            choices = tuple(replace(choice, default=at) for choice, at in zip(facts.choices, self.start, strict=True))
            facts = replace(facts, choices=choices)
        self.search = Search(facts, self.budget)
        self._draw = random.Random(self.seed)
        self._measured, self._held = math.inf, self.course.landscape.eager_us
        self.take(facts.default)

    @property
    def over(self) -> bool:
        return len(self.search.tried) >= self.budget

    def see(self) -> Seen:
        return look(self.search)

    def take(self, point: Point) -> None:
        """Measures a point, with the noise of the verifier's quick tier as simulated in the arena."""
        landscape, index = self.course.landscape, self.course.landscape.index(point)
        us = self.course.time(point)
        if us is None:
            tried = Tried(point, None)
        else:
            noise = math.hypot(NOISE, (landscape.spread[index] or 0.0) / math.sqrt(6))
            shares = landscape.shares[index] if landscape.shares else None
            launches = landscape.launches[index] if landscape.launches else None
            measured = us * math.exp(self._draw.gauss(0, noise))
            tried = Tried(point, measured, landscape.bottleneck[index], tuple(shares or ()), launches)
            if measured < self._measured:
                self._measured, self._held = measured, min(us, landscape.eager_us)
        self.search.add(tried, self.course.alike[landscape.program[index]])
        self.shares.append(self.course.best / self._held)


def courses(table: Table) -> list[Course]:
    """Returns the tasks on which at least one program passed."""
    return [Course(landscape) for landscape in table.landscapes if PASSED in landscape.status]


# Kinds of tasks, determined by the first matching word in their names. A policy is tested on a kind that did not occur in its training.
KINDS = (
    ("scan", ("cumsum", "cumprod", "scan")), ("softmax", ("softmax", "cross_entropy", "kl_")), ("norm", ("norm",)),
    ("sums", ("sum", "variance", "mse", "mean", "cosine")), ("network", ("mlp", "lstm", "gru", "attention", "transformer")),
    ("pointwise", ("gelu", "swiglu", "silu", "relu")), ("convolution", ("conv", "resnet", "lenet", "depthwise")),
    ("gather", ("embedding", "pool")),
)  # fmt: skip


def kind_of(name: str) -> str:
    """Returns the kind of a task; a name that contains none of the words is its own kind."""
    return next((kind for kind, words in KINDS if any(word in name.lower() for word in words)), name)
