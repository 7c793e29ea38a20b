"""The interval of a speedup: what one process shows from call to call, and what changes from one process to the next.

Two processes of the same code differ for as long as they live: memory that lies elsewhere, another processor, other caches. Calls of one pair of
processes say nothing about that (on an H200, calls of 200 us: 2 of 6 intervals of a program against itself missed 1.0), so it enters twice:
measured, as the spread of several fresh pairs, and as what was found on this host before (`Repeatability`), weighed like so many pairs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import BaseModel

from verifier.report import Interval

RESAMPLES = 1000
VARIES = 0.15  # from call to call, relative; beyond that other work on the host makes the difference, and it meets all processes alike
# Two-sided 95 % quantiles of Student's t by degrees of freedom; between them, by the next smaller one.
_STUDENT = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228, 12: 2.179, 15: 2.131}
_STUDENT |= {20: 2.086, 30: 2.042, 60: 2.000, 120: 1.980}


class Repeatability(BaseModel):
    """Standard deviation of a process's median call around that of all processes of the same code, relative: ``hypot(least, noise * variation)``,
    where `variation` is that process's own relative variation from call to call (a host-bound call varies, and so do its processes; a long kernel
    does neither). `weight` is the number of processes, less one a program, that it was learnt from, capped: an old host must not outvote a run."""

    least: float
    noise: float
    weight: int
    source: str = "default"

    def spread(self, variation: float) -> float:
        return math.hypot(self.least, self.noise * min(variation, VARIES))


# Measured on an H200 and on two CPU cores before a host has been calibrated: bench/results/verifier-calibration-*.json.
DEFAULTS = {"cuda": Repeatability(least=0.001, noise=0.2, weight=4), "cpu": Repeatability(least=0.003, noise=0.25, weight=4)}


@dataclass(frozen=True)
class Process:
    """Samples of one process: milliseconds, blocks by calls of a block.

    The calls of a block take turns between the places that inputs and outputs lie at, and the place can matter: a softmax of 6 GB on an H200 takes
    6.2 ms at one and 6.8 ms at the other. So medians are taken for each place, and averaged: one median over both would jump between the two.
    """

    blocks: np.ndarray

    @property
    def log_median(self) -> float:
        return float(np.log(np.median(self.blocks, axis=0).mean()))

    @property
    def variation(self) -> float:
        """Relative standard deviation from call to call at one place, by the quartiles: a few disturbed calls do not count."""
        low, middle, high = np.quantile(self.blocks / np.median(self.blocks, axis=0), [0.25, 0.5, 0.75])
        return float((high - low) / 1.349 / middle)


@dataclass(frozen=True)
class Estimate:
    interval: Interval
    within: float  # standard error of the log ratio from call to call
    between: float  # and from process to process
    freedom: float  # degrees of freedom of the whole


def student(freedom: float) -> float:
    """Two-sided 95 % quantile of Student's t, rounded up."""
    below = [value for degrees, value in _STUDENT.items() if degrees <= max(freedom, 1)]
    return 1.960 if freedom > 1000 else below[-1]


def estimate(program: Sequence[np.ndarray], baseline: Sequence[np.ndarray], known: Repeatability, seed: int) -> Estimate:
    """Speedup of the program over the baseline: each is given as one array (blocks, calls of a block) of milliseconds for every process. Process `k`
    of both sides ran in the same blocks.

    The ratio is that of the geometric means over processes of their medians. Within processes its error is bootstrapped over whole blocks, the same
    ones for both sides, so that what slowed both cancels; a process's own spread is pooled with what is known of the host. Half the width is
    Student's t of the joint degrees of freedom (Welch and Satterthwaite) times the root of both variances.
    """
    sides = [[Process(np.maximum(np.asarray(blocks, dtype=float), 1e-9)) for blocks in side] for side in (program, baseline)]
    within_each = [[block_error(process, seed) for process in side] for side in sides]
    between, slack = 0.0, 0.0
    for side, errors in zip(sides, within_each, strict=True):
        prior = known.spread(float(np.median([process.variation for process in side]))) ** 2
        count = len(side)
        variance = prior
        if count > 1:
            seen = float(np.var([process.log_median for process in side], ddof=1))
            seen = max(seen - float(np.mean(np.square(errors))), 0.0)
            variance = (known.weight * prior + (count - 1) * seen) / (known.weight + count - 1)
        between += variance / count
        slack += (variance / count) ** 2 / (known.weight + count - 1)
    within = _paired_error(sides[0], sides[1], seed) ** 2
    calls = min(process.blocks.shape[0] for side in sides for process in side) * min(len(side) for side in sides)
    total = between + within
    freedom = total**2 / (slack + within**2 / max(calls - 1, 1)) if total > 0 else 1e6
    middle = float(np.mean([p.log_median for p in sides[1]]) - np.mean([p.log_median for p in sides[0]]))
    half = student(freedom) * math.sqrt(total)
    interval = Interval(ratio=math.exp(middle), low=math.exp(middle - half), high=math.exp(middle + half))
    return Estimate(interval, math.sqrt(within), math.sqrt(between), freedom)


def _log_medians(blocks: np.ndarray, picks: np.ndarray) -> np.ndarray:
    return np.log(np.median(blocks[picks], axis=1).mean(axis=-1))


def block_error(process: Process, seed: int) -> float:
    """Standard error of a process's log median, from call to call."""
    picks = np.random.default_rng(seed).integers(0, len(process.blocks), size=(RESAMPLES // 2, len(process.blocks)))
    return float(_log_medians(process.blocks, picks).std())


def _paired_error(program: list[Process], baseline: list[Process], seed: int) -> float:
    """Standard error of the log ratio over resampled blocks. Where both sides have the same processes' blocks, the same are drawn for both."""
    generator = np.random.default_rng(seed)
    sums = [np.zeros(RESAMPLES), np.zeros(RESAMPLES)]
    for index in range(max(len(program), len(baseline))):
        picks = None
        for side, processes in enumerate((program, baseline)):
            if index < len(processes):
                blocks = processes[index].blocks
                if picks is None or picks.shape[1] != len(blocks):
                    picks = generator.integers(0, len(blocks), size=(RESAMPLES, len(blocks)))
                sums[side] += _log_medians(blocks, picks) / len(processes)
    return float((sums[1] - sums[0]).std())
