"""Expresses the state of a search as numbers with the same meaning on every task, so that what was learned on some tasks applies to others.

`look` returns a row for every legal move. A move sets one choice of one of the fastest programs to another value. A move is not legal if it leads to
a closed point, that is, one that was already tried or that generates a program already tried. The only input is `agents.moving.known.Search`, which
holds nothing but measurements.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from agents.moving.known import Choice, Facts, Point, Search, Tried

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

STRATEGIES = (
    "cuda-graph", "warp-per-row", "parallel-split", "row-cache", "block-size", "vectorise", "leave-to-library", "unroll", "occupancy",
    "work-per-thread", "register-blocking", "software-pipeline", "split-k", "tile-reuse",
)  # fmt: skip
BOTTLENECKS = ("memory", "latency", "compute", "occupancy", "launch")
BESIDE = ("warp-per-row", "parallel-split", "row-cache", "block-size", "vectorise", "leave-to-library", "unroll", "work-per-thread")  # same group
NEAR = 1.5  # length scale, in steps of a number, within which the result for one value predicts the result for another
SPREAD, NOISE = 0.1, 0.015  # standard deviations of the logarithm of a time: between programs (the prior), and of one measurement
TOGETHER = 0.3  # share of the variance that is due to combinations rather than single choices
MANY = 10.0  # scale factor for small logarithms, so that 10 % becomes 1
STATE = len(BOTTLENECKS) + 7
OWN, CHANGE, AROUND, EVIDENCE = len(STRATEGIES) + 8, 6, len(BESIDE) + 6, 7  # feature groups of a move
MOVE = OWN + CHANGE + AROUND + EVIDENCE


@dataclass(frozen=True)
class Seen:
    """`state`: (STATE,). `moves`: (moves, MOVE). `targets`: the point that each move leads to. `bases`: the index of each move's base; 0 is the
    fastest."""

    state: Floats
    moves: Floats
    targets: list[Point]
    bases: Ints
    known: tuple[Point, ...] = ()  # the bases, fastest first

    @property
    def rows(self) -> Floats:
        """Returns an array of shape (moves, MOVE + STATE), which is the input of a network."""
        return np.concatenate([self.moves, np.broadcast_to(self.state, (len(self.moves), STATE))], axis=1)


@dataclass(frozen=True)
class Pairs:
    """Every value of every choice, one row each. Constant during a search."""

    choice: Ints  # (pairs,)
    value: Ints  # (pairs,) index
    size: Floats  # (pairs,) log2(value + 1)
    own: Floats  # (pairs, features that depend on the pair alone)
    group: Ints  # index of the choice's group in the plan; -1: the whole program
    sizes: Floats  # (choices, most values) log2(value + 1)
    kernel: Floats  # (choices, most values, most values): how well the result for one value predicts the result for another
    beside: Ints  # (choices, BESIDE): the index of the choice with that strategy in the same group; -1: none
    graph: int  # index of the CUDA graph choice; -1: none


def look(search: Search) -> Seen:
    """Computes the features. Raises `ValueError` if the search has not tried anything yet, because its first program must be the compiler's own."""
    if not search.tried:
        raise ValueError("the first program of a search is the compiler's own choice: there is no move before it")
    facts = search.facts
    pairs = pairs_of(facts)
    bases = search.bases()
    targets, pair, base = legal(search, pairs, bases)
    if not len(pair):  # everything around the fastest programs has been tried
        bases = search.bases(None)
        targets, pair, base = legal(search, pairs, bases)
    state, known = _state(search, bases[0]), tuple(one.point for one in bases)
    if not len(pair):
        return Seen(state, np.zeros((0, MOVE)), [], base, known)
    now = np.array([one.point for one in bases], dtype=np.int64)[base]  # (moves, choices)
    parts = [
        pairs.own[pair], _change(facts, pairs, pair, now), _around(facts, pairs, pair, now, base, bases),
        _evidence(search, pairs, pair, now, targets, bases, base),
    ]  # fmt: skip
    return Seen(state, np.concatenate(parts, axis=1), [tuple(map(int, point)) for point in targets], base, known)


def legal(search: Search, pairs: Pairs, bases: list[Tried]) -> tuple[Ints, Ints, Ints]:
    """Returns (points, pairs, bases) of all moves, with the shapes (moves, choices), (moves,), (moves,). A point that can be reached from two bases
    is assigned to the faster one."""
    facts = search.facts
    marks = np.concatenate(facts.marks) if facts.marks else np.zeros(0, dtype=np.uint64)
    offset = np.cumsum([0, *(len(choice.values) for choice in facts.choices)])[:-1]
    found: list[tuple[Ints, Ints, Ints]] = []
    reached: set[int] = set()
    for place, one in enumerate(bases):
        point = np.array(one.point, dtype=np.int64)
        there = (np.uint64(facts.mark(one.point)) ^ marks[offset[pairs.choice] + point[pairs.choice]] ^ marks).tolist()
        other = (pairs.value != point[pairs.choice]).tolist()
        open_ = [differs and mark not in search.closed and mark not in reached for differs, mark in zip(other, there, strict=True)]
        chosen = np.flatnonzero(open_)
        points = np.repeat(point[None], len(chosen), axis=0)
        points[np.arange(len(chosen)), pairs.choice[chosen]] = pairs.value[chosen]
        found.append((points, chosen, np.full(len(chosen), place)))
        reached.update(there[pair] for pair in chosen)
    points, pair, base = (np.concatenate(column) for column in zip(*found, strict=True))
    return points, pair, base


@lru_cache(maxsize=256)
def pairs_of(facts: Facts) -> Pairs:
    choices = facts.choices
    most = max((len(choice.values) for choice in choices), default=1)
    sizes, kernel = np.zeros((len(choices), most)), np.zeros((len(choices), most, most))
    for number, choice in enumerate(choices):
        sizes[number, : len(choice.values)] = [_size(value) for value in choice.values]
        places = np.arange(most)
        apart = np.abs(places[:, None] - places[None])
        kernel[number] = np.exp(-apart / NEAR) if choice.numeric else apart == 0
    rows = [(number, value) for number, choice in enumerate(choices) for value in range(len(choice.values))]
    own = np.array([_own(choices[number], value) for number, value in rows]).reshape(len(rows), OWN)
    of, value = (np.array([row[k] for row in rows], dtype=np.int64) for k in (0, 1))
    group = np.array([facts.groups.index(c.group) if c.group in facts.groups else -1 for c in choices], dtype=np.int64)
    beside = np.array([[_find(choices, name, c.group) for name in BESIDE] for c in choices], dtype=np.int64).reshape(len(choices), len(BESIDE))
    return Pairs(of, value, sizes[of, value], own, group[of], sizes, kernel, beside, _find(choices, "cuda-graph", ""))


def _own(choice: Choice, value: int) -> list[float]:
    """Describes a value without its context: the kind of its choice, and its position among the other values."""
    kind = [float(choice.strategy == name) for name in STRATEGIES] + [float(choice.strategy not in STRATEGIES)]
    last = max(len(choice.values) - 1, 1)
    return [
        *kind, float(choice.numeric), float(value == choice.default), value / last, len(choice.values) / 5, float(choice.values[value] == 0),
        _size(choice.values[value]) / 10, (_size(choice.values[value]) - _size(choice.values[choice.default])) / 5,
    ]  # fmt: skip


def _change(facts: Facts, pairs: Pairs, pair: Ints, now: Ints) -> Floats:
    """Returns an array of shape (moves, CHANGE) that describes the step from the base's value to the new one."""
    choice = pairs.choice[pair]
    before = now[np.arange(len(pair)), choice]
    default = np.array(facts.default, dtype=np.int64)
    step = pairs.value[pair] - before
    return np.stack(
        [
            (pairs.size[pair] - pairs.sizes[choice, before]) / 5, step / 2.0, (np.abs(step) == 1).astype(float),
            (before == default[choice]).astype(float), pairs.sizes[choice, before] / 10, (now != default).sum(axis=1) / 4,
        ],
        axis=1,
    )  # fmt: skip


def _around(facts: Facts, pairs: Pairs, pair: Ints, now: Ints, base: Ints, bases: list[Tried]) -> Floats:
    """Returns an array of shape (moves, AROUND): the base's other choices in the same group, that group's share of the time, and how much slower the
    base is than the fastest program."""
    beside = pairs.beside[pairs.choice[pair]]  # (moves, BESIDE)
    at = np.take_along_axis(now, np.maximum(beside, 0), axis=1)
    context = np.where(beside >= 0, pairs.sizes[np.maximum(beside, 0), at] / 5, -1.0)
    graph = now[:, pairs.graph] if pairs.graph >= 0 else np.full(len(pair), -1)
    known = [one.shares if len(one.shares) == len(facts.groups) else () for one in bases]
    group = pairs.group[pair]
    share = np.array([known[b][g] if g >= 0 and known[b] else 0.0 for b, g in zip(base, group, strict=True)])
    whole = (group < 0).astype(float)
    behind = np.array([_log(one.us, bases[0].us) for one in bases])[base]
    right = np.array([float(one.us is not None) for one in bases])[base]
    return np.concatenate(
        [context, np.stack([graph, share, whole, np.minimum(behind * MANY, 5.0), (base == 0).astype(float), right], axis=1)], axis=1
    )


def _evidence(search: Search, pairs: Pairs, pair: Ints, now: Ints, targets: Ints, bases: list[Tried], base: Ints) -> Floats:
    """Returns an array of shape (moves, EVIDENCE): what the measured programs predict for this one, both through a Gaussian process over single
    choices and through the programs with the same value."""
    right = [one for one in search.tried if one.us is not None]
    points = np.array([one.point for one in search.tried], dtype=np.int64)  # (tried, choices)
    choice, value = pairs.choice[pair], pairs.value[pair]
    same = points[:, choice] == value  # (tried, moves)
    count = same.sum(axis=0)
    failed = np.array([one.us is None for one in search.tried])
    lost = (same & failed[:, None]).sum(axis=0)
    if not right:
        return np.stack([count / 4, lost / 2, *np.zeros((5, len(pair)))], axis=1)
    best = bases[0].us
    logs = np.array([_log(one.us, best) for one in right])  # how much slower than the fastest program
    mean, deviation = _expected(pairs, np.array([one.point for one in right], dtype=np.int64), logs, targets)
    level = np.where(failed, np.inf, [0.0 if one.us is None else _log(one.us, best) for one in search.tried])
    closest = np.where(same, level[:, None], np.inf).min(axis=0)
    tested = np.isfinite(closest).astype(float)
    closest = np.where(np.isfinite(closest), closest, 0.0)
    like = (points[:, choice] != now[np.arange(len(pair)), choice]).sum(axis=0)
    return np.stack(
        [
            count / 4, lost / 2, np.clip(mean * MANY, -5, 5), deviation * MANY, np.clip(closest * MANY, 0, 5), tested, like / len(points),
        ],
        axis=1,
    )  # fmt: skip


def _expected(pairs: Pairs, known: Ints, logs: Floats, targets: Ints) -> tuple[Floats, Floats]:
    """Returns, per move, the mean and standard deviation of the slowdown relative to the fastest program, predicted by a Gaussian process over single
    choices and all choices jointly."""
    level = logs.mean()
    among = _alike(pairs, known, known) + np.eye(len(known)) * NOISE**2
    to = _alike(pairs, targets, known)
    solved = np.linalg.solve(among, np.column_stack([logs - level, to.T]))
    mean = level + to @ solved[:, 0]
    variance = SPREAD**2 - np.einsum("mk,km->m", to, solved[:, 1:])
    return mean, np.sqrt(np.maximum(variance, 0.0))


def _alike(pairs: Pairs, left: Ints, right: Ints) -> Floats:
    """Returns an array of shape (left, right): the covariance between the logarithms of two programs' times."""
    each = pairs.kernel[np.arange(left.shape[1]), left[:, None, :], right[None, :, :]]  # (left, right, choices)
    found: Floats = SPREAD**2 * ((1 - TOGETHER) * each.mean(axis=2) + TOGETHER * each.prod(axis=2))
    return found


def _state(search: Search, best: Tried) -> Floats:
    facts, done = search.facts, len(search.tried)
    first = search.tried[0].us
    left = max(search.budget - done, 0)
    levels = [one.us if one.us is not None else math.inf for one in search.tried]
    since = done - 1 - int(np.argmin(levels))
    over_floor = _log(best.us, facts.floor_us) if best.us is not None and facts.floor_us > 0 else 0.0
    return np.array(
        [
            *(float(best.bottleneck == name) for name in BOTTLENECKS), over_floor / 2, math.log2((best.launches or 0.0) + 1) / 5,
            math.log2(len(facts.groups) + 1) / 4, done / 24, left / 24, min(since, 16) / 8, min(_log(first, best.us) * MANY, 5.0),
        ]
    )  # fmt: skip


def _log(over: float | None, under: float | None) -> float:
    """Returns the logarithm of a ratio, or 0 if either value is unknown."""
    return math.log(over / under) if over and under else 0.0


def _size(value: int) -> float:
    return math.log2(abs(value) + 1)


def _find(choices: tuple[Choice, ...], strategy: str, group: str) -> int:
    return next((number for number, choice in enumerate(choices) if choice.strategy == strategy and choice.group == group), -1)
