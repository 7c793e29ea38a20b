"""Figures of many entries over the same tasks. A task without a solution counts as 1.0 in the means: its user goes on with what there was.

Geometric means carry a 95 % interval for other tasks like these, measured again: tasks are drawn with replacement (1,000 draws from a fixed start),
and with each draw every drawn task's logarithm moves by the standard error that its own report's interval implies.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

DRAWS = 1000
START = 20261121
NORMAL = 1.959964  # half the width of a 95 % interval in standard errors


@dataclass(frozen=True)
class Interval:
    ratio: float
    low: float
    high: float


def geometric_means(ratios: np.ndarray, low: np.ndarray, high: np.ndarray, solved: np.ndarray) -> list[Interval]:
    """Of each row; all arguments are entries x tasks, `low` and `high` NaN where no interval is known, `solved` says which count."""
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
    """How often each task comes in each draw (tasks x draws), the squares of that, and one normal deviate a draw; the same for all entries."""
    random = np.random.default_rng([START, tasks])
    counts = np.ascontiguousarray(random.multinomial(tasks, np.full(tasks, 1 / tasks), size=DRAWS).T, dtype=np.float64)
    return counts, counts**2, random.standard_normal(DRAWS)


def fast(ratios: np.ndarray, solved: np.ndarray, p: float) -> np.ndarray:
    """fast_p of each row: the share of all tasks that are solved and more than p times as fast."""
    tasks = solved.shape[1]
    return (solved & (np.nan_to_num(ratios) > p)).sum(axis=1) / tasks if tasks else np.zeros(len(solved))
