"""Computes the confidence interval of a speedup from the variation between calls of a process and the variation between processes.

All processes are timed in turn, so much of what disturbs a call also disturbs calls that are close to it in time: a host that is slow for a few
milliseconds is slow for the program and for eager. The part that is common to a whole turn is removed first, with a median polish (J. W. Tukey,
Exploratory Data Analysis, 1977): log time = process + turn + rest, fitted by medians. On H200s, three tasks with host-bound calls were measured
against themselves 40 times each. With the polish, their ratios varied by 1.4 to 1.6 % instead of 2.9 to 6.5 %
(bench/results/verifier-calibration-turns-h200.json).

Two processes that run the same code differ for their whole lifetime, because their memory and caches differ. Calls of one pair of processes say
nothing about that variation (on an H200, with 200 us calls, 2 of 6 intervals of a program against itself missed 1.0). It is therefore estimated from
two sources: the measured spread of several fresh pairs, and earlier findings on this host (`Repeatability`), which are weighted as if they were a
number of pairs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from pydantic import BaseModel, Field

from verifier.report import Interval

RESAMPLES = 500
POLISHES, POLISHED = 8, 1e-6  # maximum number of rounds; relative change of all levels below which they stop earlier
POLISHES_AGAIN = 4  # number of rounds for resampled blocks, which start from the levels of all blocks
VARIES = 0.15  # relative variation from call to call above which other work on the host is the cause, which affects all processes alike
# Two-sided 95 % quantiles of Student's t by degrees of freedom; for values in between, the next smaller entry applies.
_STUDENT = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228, 12: 2.179, 15: 2.131}
_STUDENT |= {20: 2.086, 30: 2.042, 60: 2.000, 120: 1.980}


class Repeatability(BaseModel):
    """Relative standard deviation of a process's median call time around the median of all processes that run the same code.

    It is ``hypot(least, noise * variation)``, where `variation` is that process's own relative variation from call to call (if calls are host-bound,
    both the calls and the processes vary; if they are long kernels, neither does). `weight` is the number of processes from which the figures were
    derived, minus one per program, up to a maximum. It counts for less if a run shows more variation than was known (`_pooled`), because old data
    about a host must not outvote a run."""

    least: float = Field(ge=0)
    noise: float = Field(ge=0)
    weight: int = Field(ge=1)
    source: str = "default"

    def spread(self, variation: float) -> float:
        return math.hypot(self.least, self.noise * min(variation, VARIES))


# Measured on an H200 and on two CPU cores, as defaults for uncalibrated hosts: bench/results/verifier-calibration-*.json.
DEFAULTS = {"cuda": Repeatability(least=0.001, noise=0.2, weight=4), "cpu": Repeatability(least=0.003, noise=0.25, weight=4)}


def without_turns(samples: Sequence[np.ndarray]) -> np.ndarray:
    """Returns log milliseconds of processes that ran in turn, without the part that is common to each turn.

    The result is an array (processes, blocks, calls of a block), from one array (blocks, calls of a block) per process, all of the same shape. A turn
    is one input on every process. The common parts have a median of 0 over blocks, so a process's median is still its time.

    The calls of a block alternate between two locations for inputs and outputs, and the location can matter: a 6 GB softmax on an H200 takes 6.2 ms
    at one and 6.8 ms at the other. Therefore, each location of each process has its own level.

    >>> slow_turn = np.array([[1.0], [2.0], [1.0]])
    >>> np.exp(without_turns([slow_turn, 3 * slow_turn])).round(3).tolist()
    [[[1.0], [1.0], [1.0]], [[3.0], [3.0], [3.0]]]
    """
    logs = _logs(samples)
    turns, _ = _polished(logs, np.median(logs, axis=-2, keepdims=True), POLISHES)
    levels: np.ndarray = logs - turns
    return levels


def _logs(samples: Sequence[np.ndarray]) -> np.ndarray:
    logs: np.ndarray = np.log(np.maximum(np.asarray(samples, dtype=float), 1e-9))
    return logs


def _polished(logs: np.ndarray, level: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns turns (..., 1, blocks, calls of a block) and levels (..., processes, 1, calls of a block) from logs (..., processes, blocks, calls of a
    block), starting from the given levels."""
    turns = np.zeros_like(logs[..., :1, :, :])
    for _ in range(most):
        turns = _median(logs - level, axis=-3)
        turns -= _median(turns, axis=-2)
        before, level = level, _median(logs - turns, axis=-2)
        if np.abs(level - before).max() < POLISHED:
            break
    return turns, level


def _median(values: np.ndarray, axis: int) -> np.ndarray:
    """Returns the same as `np.median` with `keepdims`. For many short rows, sorting takes a quarter of the time of the partitioning in `np.median`.

    >>> _median(np.array([[3.0, 1.0, 2.0], [4.0, np.nan, 8.0]]), axis=-1).tolist()
    [[2.0], [nan]]
    """
    ordered = np.moveaxis(np.sort(values, axis=axis), axis, 0)
    low, high, last = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2], ordered[-1]
    middle = np.where(np.isnan(last), np.nan, (low + high) / 2)  # NaNs are sorted last
    return np.expand_dims(middle, axis)


def variations(logs: np.ndarray) -> np.ndarray:
    """Returns each process's relative standard deviation from call to call at one location, from (processes, blocks, calls of a block) without turns.
    It is estimated from quartiles, so a few disturbed calls do not count."""
    low, high = np.quantile(logs - np.median(logs, axis=1, keepdims=True), [0.25, 0.75], axis=(1, 2))
    deviations: np.ndarray = (high - low) / 1.349 * own_share(len(logs))
    return deviations


def own_share(processes: int) -> float:
    """Returns the ratio of a process's own variation to its remaining variation without turns. The common part of turns is fitted to the same calls,
    so it absorbs part of each call's own variation; with two processes, it absorbs half of the variance."""
    return math.sqrt(processes / (processes - 1))


@dataclass(frozen=True)
class Estimate:
    interval: Interval
    program_ms: float  # in a typical turn; the ratio is the quotient of the two times
    baseline_ms: float
    within: float  # standard error of the log ratio due to calls
    between: float  # standard error due to processes
    freedom: float  # joint degrees of freedom
    drawn: np.ndarray = field(compare=False, repr=False)  # the log ratio of each bootstrap draw; with equal seeds and shapes, draws are equal

    @property
    def half(self) -> float:
        """Returns half the interval's width, relative to the ratio."""
        return (self.interval.high - self.interval.low) / 2 / self.interval.ratio


def student(freedom: float) -> float:
    """Returns the two-sided 95 % quantile of Student's t, rounded up."""
    below = [value for degrees, value in _STUDENT.items() if degrees <= max(freedom, 1)]
    return 1.960 if freedom > 1000 else below[-1]


def estimate(
    program: Sequence[np.ndarray], baseline: Sequence[np.ndarray], known: Repeatability, seed: int, rounds: Sequence[int] | None = None
) -> Estimate:
    """Estimates the speedup of the program over the baseline. For each of the two, there is one array (blocks, calls of a block) of milliseconds per
    process. Process `k` of both sides ran in the same blocks, and so did all processes with the same number in `rounds` (null: all of them).

    The ratio is the quotient of two geometric means, taken over the processes' typical call times without the part that turns had in common. Its
    error within processes is bootstrapped over whole blocks, using the same blocks for all processes that ran in them, and turns are refitted. The
    spread between a side's processes is pooled with what is known about the host. Half the width is Student's t for the joint degrees of freedom
    (Welch and Satterthwaite) times the root of the sum of both variances.
    """
    count = len(program)
    if len(baseline) != count or (rounds is not None and len(rounds) != count):
        raise ValueError(f"{count} processes of the program, {len(baseline)} of the baseline: as many of both are compared")
    rounds = [0] * count if rounds is None else list(rounds)
    generator = np.random.default_rng(seed)
    middles, varied = np.zeros((2, count)), np.zeros((2, count))
    drawn = np.zeros((2, count, RESAMPLES))
    blocks = []
    for number in sorted(set(rounds)):
        members = [index for index in range(count) if rounds[index] == number]
        together = [side[index] for side in (program, baseline) for index in members]
        found, again = bootstrapped(together, generator)
        middles[:, members], drawn[:, members] = found.reshape(2, -1), again.reshape(2, len(members), -1)
        varied[:, members] = variations(without_turns(together)).reshape(2, -1)
        blocks.append(len(together[0]))
    between, slack = _between(middles, drawn, varied, np.array(rounds), known)
    ratios = (drawn[1] - drawn[0]).mean(axis=0)
    within = float(ratios.var())
    total = between + within
    freedom = total**2 / (slack + within**2 / max(min(blocks) * count - 1, 1)) if total > 0 else 1e6
    ratio = float(middles[1].mean() - middles[0].mean())
    width = student(freedom) * math.sqrt(total)
    interval = Interval(ratio=math.exp(ratio), low=math.exp(ratio - width), high=math.exp(ratio + width))
    program_ms, baseline_ms = (math.exp(float(side.mean())) for side in middles)
    return Estimate(interval, program_ms, baseline_ms, math.sqrt(within), math.sqrt(between), freedom, ratios)


def _between(middles: np.ndarray, drawn: np.ndarray, varied: np.ndarray, rounds: np.ndarray, known: Repeatability) -> tuple[float, float]:
    """Returns the variance of the log ratio between processes, and its term in the joint degrees of freedom, from arrays (sides, processes) and,
    resampled, (sides, processes, `RESAMPLES`). The variance is the spread of a side's processes within rounds, since the host may be slower in one
    round than in the next, minus the part that variation within processes explains."""
    count = middles.shape[1]
    groups = [rounds == number for number in sorted(set(rounds.tolist()))]
    spare = count - len(groups)  # degrees of freedom
    between = slack = 0.0
    for side in range(2):
        apart = sum(_apart(middles[side, group]) - _apart_by_calls(drawn[side, group]) for group in groups)
        variance, freedom = _pooled(known.spread(float(np.median(varied[side]))) ** 2, known.weight, apart, spare)
        between += variance / count
        slack += (variance / count) ** 2 / freedom
    if spare or count == 1:
        return between, slack
    # If the device holds no more than one pair, each round has one pair, and only the spread of the ratios is informative.
    ratios, again = middles[1] - middles[0], drawn[1] - drawn[0]
    variance, freedom = _pooled(between * count, known.weight, _apart(ratios) - (count - 1) * float(again.var(axis=1).mean()), count - 1)
    return variance / count, (variance / count) ** 2 / freedom


def _pooled(prior: float, weight: float, apart: float, spare: int) -> tuple[float, float]:
    """Pools a variance and its degrees of freedom from what is known about the host and from `apart`, the observed sum of squares with `spare`
    degrees of freedom. If the observed variance is larger than the known one, this program may be a different case, and the earlier findings count
    for less, by the square of the excess. (For processes that differ by 4 times what was known, intervals from three pairs then contain the true
    value in 96 % of cases; with the full weight of 6, they would do so in only 71 %.)
    """
    seen = max(apart, 0.0) / spare if spare else 0.0
    if seen > prior:
        weight *= (prior / seen) ** 2
    return (weight * prior + spare * seen) / (weight + spare), weight + spare


def _apart(middles: np.ndarray) -> float:
    return float(np.square(middles - middles.mean()).sum())


def _apart_by_calls(drawn: np.ndarray) -> float:
    """Returns the part of the variance that calls explain, for one side's processes that ran in turn (processes, `RESAMPLES`)."""
    return float((drawn - drawn.mean(axis=0)).var(axis=1).sum())


def between_processes(middles: np.ndarray, drawn: np.ndarray) -> float:
    """Returns the standard deviation between processes that ran the same code in turn, minus the part that variation within processes explains."""
    return math.sqrt(max(_apart(middles) - _apart_by_calls(drawn), 0.0) / (len(middles) - 1))


def bootstrapped(samples: Sequence[np.ndarray], generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Bootstraps processes that ran in turn, each (blocks, calls of a block). Returns the log of each process's typical call time without turns, and
    the same for resampled blocks (processes, `RESAMPLES`), using the same blocks for all processes. Turns are refitted for every draw, because a
    disturbance of some processes in a turn also affects the fit of that turn. With fixed turns, standard errors of host-bound calls on an H200 were a
    third too small.
    """
    logs = _logs(samples)
    # The typical time is the mean of the medians at both locations, because a single median over both would jump between them.
    _, level = _polished(logs, np.median(logs, axis=-2, keepdims=True), POLISHES)
    picks = generator.integers(0, logs.shape[1], size=(RESAMPLES, logs.shape[1]))
    _, again = _polished(logs[:, picks].swapaxes(0, 1), level, POLISHES_AGAIN)
    return level.mean(axis=(-1, -2)), again.mean(axis=(-1, -2)).T
