"""Computes the figures of many entries over the same tasks.

A task without a solution counts as 1.0 in the means, because its user keeps the existing program. Each geometric mean has a 95 % interval, which
estimates how the mean would vary with similar tasks and new measurements. Tasks are resampled with replacement (1,000 draws from a fixed seed). In
each draw, the logarithm of every drawn task's ratio is perturbed by the standard error implied by the interval in its report.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

DRAWS = 1000
START = 20261121
NORMAL = 1.959964  # half-width of a 95 % interval in standard errors


@dataclass(frozen=True)
class Interval:
    ratio: float
    low: float
    high: float


def geometric_means(ratios: np.ndarray, low: np.ndarray, high: np.ndarray, solved: np.ndarray) -> list[Interval]:
    """Return the geometric mean of each row.

    All arguments have the shape entries x tasks. `low` and `high` are NaN if no interval is known, and `solved` marks the tasks that count.
    """
    entries, tasks = solved.shape
    if not tasks:
        return [Interval(1.0, 1.0, 1.0)] * entries
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.where(solved, np.log(ratios), 0.0)
        errors = np.where(solved, (np.log(high) - np.log(low)) / (2 * NORMAL), 0.0)
    errors = np.nan_to_num(errors)
    counts, squares, noise = draws(tasks)
    means = logs @ counts / tasks
    spread = np.sqrt(errors**2 @ squares) / tasks
    bounds = np.exp(np.quantile(means + spread * noise, [0.025, 0.975], axis=1))
    return [Interval(float(m), float(lo), float(hi)) for m, lo, hi in zip(np.exp(logs.mean(axis=1)), *bounds, strict=True)]


@lru_cache(maxsize=64)
def draws(tasks: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the draws, which are the same for all entries.

    The arrays hold the number of times that each task occurs in each draw (tasks x draws), its square, and one normal deviate per draw.
    """
    random = np.random.default_rng([START, tasks])
    counts = np.ascontiguousarray(random.multinomial(tasks, np.full(tasks, 1 / tasks), size=DRAWS).T, dtype=np.float64)
    return counts, counts**2, random.standard_normal(DRAWS)


def fast(ratios: np.ndarray, solved: np.ndarray, p: float) -> np.ndarray:
    """Return fast_p of each row: the share of all tasks that are solved with a speedup above p."""
    tasks = solved.shape[1]
    return (solved & (np.nan_to_num(ratios) > p)).sum(axis=1) / tasks if tasks else np.zeros(len(solved))
