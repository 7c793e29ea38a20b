"""The arena's table: what each workflow achieved on the same tasks with the same seeds and budget, with an interval and the worst seed in addition to
the mean.

A task without a correct program counts as 1.0, because its user keeps running eager. Intervals are 95 % percentile bootstraps with 2,000 draws from a
fixed random seed. Tasks are drawn with replacement, and then seeds are drawn for each task, so the intervals account for variation over both tasks
and seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

DRAWS = 2000
INTERVAL = "95 % percentile-bootstrap interval over tasks, and over seeds within a task"


@dataclass(frozen=True)
class FinishedRun:
    """One finished run."""

    task: str
    workflow: str
    seed: int
    success: bool  # a correct program that is faster than eager has been confirmed
    speedup: float | None  # confirmed speedup over eager; None if there is none
    outcome: str
    calls: int = 0
    tokens: int = 0
    dollars: float = 0.0
    programs: int = 0
    verifier_seconds: float = 0.0
    seconds: float = 0.0
    reason: str = ""
    place: str = ""  # the run's folder or address

    @property
    def value(self) -> float:
        return max(self.speedup, 1.0) if self.speedup is not None and self.success else 1.0


@dataclass(frozen=True)
class Score:
    """The score of one workflow. Means are per run; `worst_*` fields describe the seed with the lowest geometric mean."""

    workflow: str
    runs: int
    success: int
    geometric_mean: float
    low: float
    high: float
    worst_seed: int
    worst_success: int  # minimum over the runs with that seed
    worst_runs: int
    worst_geometric_mean: float
    calls: float
    tokens: float
    dollars: float
    programs: float
    verifier_seconds: float
    seconds: float


def score(rows: Sequence[FinishedRun], workflow: str) -> Score:
    mine = [row for row in rows if row.workflow == workflow]
    if not mine:
        raise ValueError(f"there are no runs of {workflow}")
    seeds = sorted({row.seed for row in mine})
    by_seed = {seed: [row for row in mine if row.seed == seed] for seed in seeds}
    means = {seed: geometric_mean([row.value for row in own]) for seed, own in by_seed.items()}
    worst = min(seeds, key=lambda seed: (means[seed], seed))
    low, high = interval(mine)
    return Score(
        workflow=workflow, runs=len(mine), success=sum(row.success for row in mine), geometric_mean=geometric_mean([row.value for row in mine]),
        low=low, high=high, worst_seed=worst, worst_success=sum(row.success for row in by_seed[worst]), worst_runs=len(by_seed[worst]),
        worst_geometric_mean=means[worst],
        **{name: float(np.mean([getattr(row, name) for row in mine])) for name in MEANS},
    )  # fmt: skip


def scores(rows: Sequence[FinishedRun]) -> list[Score]:
    """Returns scores, best first."""
    found = [score(rows, workflow) for workflow in dict.fromkeys(row.workflow for row in rows)]
    return sorted(found, key=lambda s: -s.geometric_mean)


def geometric_mean(values: Sequence[float]) -> float:
    return float(np.exp(np.mean(np.log(values)))) if len(values) else 1.0


def interval(rows: Sequence[FinishedRun]) -> tuple[float, float]:
    """Returns the interval of the geometric mean over all rows of a workflow."""
    tasks: dict[str, list[float]] = {}
    for row in sorted(rows, key=lambda row: (row.task, row.seed)):  # makes the result independent of the order in which runs ended
        tasks.setdefault(row.task, []).append(float(np.log(row.value)))
    groups = [np.array(values) for values in tasks.values()]
    draw = np.random.default_rng(20261121)
    # First compute each task's mean over resampled seeds, once per draw; then resample the tasks themselves.
    means = np.stack([group[draw.integers(0, len(group), size=(DRAWS, len(group)))].mean(axis=1) for group in groups], axis=1)
    picks = draw.integers(0, len(groups), size=(DRAWS, len(groups)))
    logs = np.take_along_axis(means, picks, axis=1).mean(axis=1)
    low, high = np.quantile(logs, [0.025, 0.975])
    return float(np.exp(low)), float(np.exp(high))


MEANS = ("calls", "tokens", "dollars", "programs", "verifier_seconds", "seconds")
HEAD = ["workflow", "success", "geometric mean", "worst seed", "calls", "tokens", "dollars", "programs", "verifier s", "wall s"]


def cells(found: Sequence[Score]) -> list[list[str]]:
    return [
        [
            s.workflow,
            f"{s.success}/{s.runs}",
            f"{s.geometric_mean:.2f} [{s.low:.2f}, {s.high:.2f}]",
            f"{s.worst_geometric_mean:.2f}, {s.worst_success}/{s.worst_runs} (seed {s.worst_seed})",
            f"{s.calls:.1f}",
            f"{s.tokens:,.0f}",
            f"{s.dollars:.3f}",
            f"{s.programs:.1f}",
            f"{s.verifier_seconds:.0f}",
            f"{s.seconds:.0f}",
        ]
        for s in found
    ]


def plain(found: Sequence[Score]) -> list[dict[str, Any]]:
    return [{name: round(value, 4) if isinstance(value, float) else value for name, value in asdict(s).items()} for s in found]
