"""Scores: successes, means with intervals, the worst seed."""

from __future__ import annotations

import math

import pytest

from agents.arena.scoring import FinishedRun, cells, geometric_mean, interval, score, scores


def row(task: str, workflow: str, seed: int, speedup: float | None, **fields) -> FinishedRun:
    return FinishedRun(task, workflow, seed, speedup is not None and speedup > 1, speedup, "improved" if speedup else "failed", **fields)


def test_a_run_without_a_faster_program_counts_as_eager():
    assert [row("a", "w", 1, value).value for value in (2.0, None, 0.8)] == [2.0, 1.0, 1.0]
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0) and geometric_mean([]) == 1.0


def test_the_worst_seed_stands_beside_the_mean():
    rows = [row(task, "w", seed, {1: 4.0, 2: 2.0, 3: None}[seed], calls=seed) for task in "abc" for seed in (1, 2, 3)]
    found = score(rows, "w")
    assert (found.runs, found.success, found.worst_seed, found.worst_success, found.worst_runs) == (9, 6, 3, 0, 3)
    assert found.geometric_mean == pytest.approx(2.0) and found.worst_geometric_mean == 1.0 and found.calls == 2.0
    assert found.low <= 2.0 <= found.high


def test_the_interval_covers_what_differs_between_tasks_and_shrinks_with_their_number():
    few = [row(f"t{n}", "w", 1, 1.5 + n) for n in range(4)]
    many = [row(f"t{n}", "w", 1, 1.5 + n % 4) for n in range(64)]
    wide, narrow = (math.log(high / low) for low, high in map(interval, (few, many)))
    assert narrow < wide / 3
    assert interval([row("a", "w", 1, 2.0)]) == (pytest.approx(2.0), pytest.approx(2.0))
    assert interval(few) == interval(few)


def test_the_best_workflow_comes_first_and_every_cell_is_text():
    found = scores([row("a", "slow", 1, 1.2), row("a", "fast", 1, 3.0), row("a", "none", 1, None)])
    assert [s.workflow for s in found] == ["fast", "slow", "none"]
    assert cells(found)[0][:3] == ["fast", "1/1", "3.00 [3.00, 3.00]"]
    with pytest.raises(ValueError, match="no runs"):
        score([], "fast")
