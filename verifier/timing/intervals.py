"""The interval of a speedup: what one process shows from call to call, and what changes from one process to the next.

All processes are timed in turn, so much of what disturbs a call disturbs its neighbours in time as well: a host that is slow for some
milliseconds is slow for the program and for eager. What a whole turn has in common is taken out first, by a median polish (J. W. Tukey, Exploratory
Data Analysis, 1977): log time = process + turn + rest, fitted by medians. On H200s, of three tasks against themselves whose calls wait for the host,
40 times each, ratios then vary by 1.4 to 1.6 % instead of 2.9 to 6.5 %: bench/results/verifier-calibration-turns-h200.json.

Two processes of the same code differ for as long as they live: memory that lies elsewhere, other caches. Calls of one pair of processes say nothing
about that (on an H200, calls of 200 us: 2 of 6 intervals of a program against itself missed 1.0), so it enters twice: measured, as the spread of
several fresh pairs, and as what was found on this host before (`Repeatability`), weighed like so many pairs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from pydantic import BaseModel, Field

from verifier.report import Interval

RESAMPLES = 500
POLISHES, POLISHED = 8, 1e-6  # rounds at most, and a change of all levels, relative, that ends them before
POLISHES_AGAIN = 4  # of blocks drawn again, which begin with the levels of all blocks
VARIES = 0.15  # from call to call, relative; beyond that other work on the host makes the difference, and it meets all processes alike
# Two-sided 95 % quantiles of Student's t by degrees of freedom; between them, by the next smaller one.
_STUDENT = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228, 12: 2.179, 15: 2.131}
_STUDENT |= {20: 2.086, 30: 2.042, 60: 2.000, 120: 1.980}


class Repeatability(BaseModel):
    """Standard deviation of a process's median call around that of all processes of the same code, relative: ``hypot(least, noise * variation)``,
    where `variation` is that process's own relative variation from call to call (a host-bound call varies, and so do its processes; a long kernel
    does neither). `weight` is the number of processes, less one a program, that it was learnt from, capped, and counts less where a run shows more
    than was known (`_pooled`): an old host must not outvote a run."""

    least: float = Field(ge=0)
    noise: float = Field(ge=0)
    weight: int = Field(ge=1)
    source: str = "default"

    def spread(self, variation: float) -> float:
        return math.hypot(self.least, self.noise * min(variation, VARIES))


# Measured on an H200 and on two CPU cores before a host has been calibrated: bench/results/verifier-calibration-*.json.
DEFAULTS = {"cuda": Repeatability(least=0.001, noise=0.2, weight=4), "cpu": Repeatability(least=0.003, noise=0.25, weight=4)}


def without_turns(samples: Sequence[np.ndarray]) -> np.ndarray:
    """Log milliseconds of processes that ran in turn, without what each turn had in common: an array (processes, blocks, calls of a block), out of
    one (blocks, calls of a block) for each process, all of the same shape. A turn is what every process did with one input. What the turns have in
    common is 0 in its median over blocks, so that a process's median stays its time.

    The calls of a block take turns between the places that inputs and outputs lie at, and the place can matter: a softmax of 6 GB on an H200 takes
    6.2 ms at one and 6.8 ms at the other. So each place of each process has a level of its own.

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
    """Turns (..., 1, blocks, calls of a block) and levels (..., processes, 1, calls of a block) of logs (..., processes, blocks, calls of a block),
    from the levels to begin with."""
    turns = np.zeros_like(logs[..., :1, :, :])
    for _ in range(most):
        turns = np.median(logs - level, axis=-3, keepdims=True)
        turns -= np.median(turns, axis=-2, keepdims=True)
        before, level = level, np.median(logs - turns, axis=-2, keepdims=True)
        if np.abs(level - before).max() < POLISHED:
            break
    return turns, level


def variations(logs: np.ndarray) -> np.ndarray:
    """Of each process (processes, blocks, calls of a block), without turns: its relative standard deviation from call to call at one place, by the
    quartiles, as a few disturbed calls do not count."""
    low, high = np.quantile(logs - np.median(logs, axis=1, keepdims=True), [0.25, 0.75], axis=(1, 2))
    deviations: np.ndarray = (high - low) / 1.349 * own_share(len(logs))
    return deviations


def own_share(processes: int) -> float:
    """What a process varies by itself over what is left of it without turns: what turns have in common is fitted to the same calls, so a part of each
    call's own goes with it; of two processes that is half of the variance."""
    return math.sqrt(processes / (processes - 1))


@dataclass(frozen=True)
class Estimate:
    interval: Interval
    program_ms: float  # of a usual turn; their quotient is the ratio
    baseline_ms: float
    within: float  # standard error of the log ratio from call to call
    between: float  # and from process to process
    freedom: float  # degrees of freedom of the whole
    drawn: np.ndarray = field(compare=False, repr=False)  # the log ratio of each draw of the bootstrap; the same seed and shapes draw the same blocks

    @property
    def half(self) -> float:
        """Half the interval's width, relative to the ratio."""
        return (self.interval.high - self.interval.low) / 2 / self.interval.ratio


def student(freedom: float) -> float:
    """Two-sided 95 % quantile of Student's t, rounded up."""
    below = [value for degrees, value in _STUDENT.items() if degrees <= max(freedom, 1)]
    return 1.960 if freedom > 1000 else below[-1]


def estimate(
    program: Sequence[np.ndarray], baseline: Sequence[np.ndarray], known: Repeatability, seed: int, rounds: Sequence[int] | None = None
) -> Estimate:
    """Speedup of the program over the baseline: each is given as one array (blocks, calls of a block) of milliseconds for every process. Process `k`
    of both sides ran in the same blocks, and so did all processes with the same number in `rounds` (null: all of them).

    The ratio is that of the geometric means over processes of their middle calls, without what turns had in common. Within processes its error is
    bootstrapped over whole blocks, the same ones for all that ran in them, turns fitted anew; how far processes of a side lie apart is pooled with
    what is known of the host. Half the width is Student's t of the joint degrees of freedom (Welch and Satterthwaite) times the root of both
    variances.
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
    """Variance of the log ratio from process to process, and what it takes from the degrees of freedom, out of arrays (sides, processes) and, drawn
    again, (sides, processes, `RESAMPLES`): how far processes of a side lie apart within rounds, as the host may be slower in one than in the next;
    less what their own calls explain."""
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
    # Rounds of a pair each, as the device holds no more: only how far their ratios lie apart tells something.
    ratios, again = middles[1] - middles[0], drawn[1] - drawn[0]
    variance, freedom = _pooled(between * count, known.weight, _apart(ratios) - (count - 1) * float(again.var(axis=1).mean()), count - 1)
    return variance / count, (variance / count) ** 2 / freedom


def _pooled(prior: float, weight: float, apart: float, spare: int) -> tuple[float, float]:
    """A variance and its degrees of freedom, from what is known of the host and `apart`, the sum of squares of `spare` degrees of freedom that were
    seen. Where more is seen than was known, this program may be another case, and the past counts for less: by the square of what is seen over it.
    (Of processes that differ by 4 times what was known, intervals from three pairs then hold the truth in 96 %, with the full weight of 6 in 71 %.)
    """
    seen = max(apart, 0.0) / spare if spare else 0.0
    if seen > prior:
        weight *= (prior / seen) ** 2
    return (weight * prior + spare * seen) / (weight + spare), weight + spare


def _apart(middles: np.ndarray) -> float:
    return float(np.square(middles - middles.mean()).sum())


def _apart_by_calls(drawn: np.ndarray) -> float:
    """As much of that as calls explain, of processes of a side that ran in turn (processes, `RESAMPLES`)."""
    return float((drawn - drawn.mean(axis=0)).var(axis=1).sum())


def between_processes(middles: np.ndarray, drawn: np.ndarray) -> float:
    """Standard deviation of processes of the same code that ran in turn, less what their own calls explain."""
    return math.sqrt(max(_apart(middles) - _apart_by_calls(drawn), 0.0) / (len(middles) - 1))


def bootstrapped(samples: Sequence[np.ndarray], generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Of processes that ran in turn, each (blocks, calls of a block): the log of each one's middle call without turns, and the same of blocks that
    were drawn again (processes, `RESAMPLES`), the same ones for all. Turns are fitted to every draw anew: what disturbs some processes of a turn
    pulls at its fit too, so that with the turns kept, standard errors of calls that wait for an H200's host came out a third too small.
    """
    logs = _logs(samples)
    # A middle call is the mean of the medians at both places: one median over both would jump between the two.
    _, level = _polished(logs, np.median(logs, axis=-2, keepdims=True), POLISHES)
    picks = generator.integers(0, logs.shape[1], size=(RESAMPLES, logs.shape[1]))
    _, again = _polished(logs[:, picks].swapaxes(0, 1), level, POLISHES_AGAIN)
    return level.mean(axis=(-1, -2)), again.mean(axis=(-1, -2)).T
