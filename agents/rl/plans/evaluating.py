"""Evaluates the policy on kinds of tasks that were excluded from its training, and compares it with `random`, `descend` and the ledger, with
intervals."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.rl.plans import arms
from agents.rl.plans.arms import Curve
from agents.rl.plans.episodes import Course
from agents.rl.plans.folds import Fold, combined, folds

AFTER = (8, 24)  # program budgets; each is a separate contest in which the searches know their budget
DRAWS = 2000
INTERVAL = "95 % percentile bootstrap: tasks are drawn with replacement, and for each drawn task its seeds; 2,000 draws"
COUNTING = "repeats: a program that prints what was measured before costs one of the budget, as in the arena; else it is free"
POLICY, BAR = "policy", "descend"
Shares = NDArray[np.float64]  # (tasks, seeds)
Play = Callable[[int, int], Curve]  # seed, programs


@dataclass(frozen=True)
class Arm:
    name: str
    play: Play


def arms_of(course: Course, fold: Fold, folder: Path) -> list[Arm]:
    """Returns the arms that are compared on a held-out task."""

    def of_arena(name: str, free: bool) -> Play:
        return lambda seed, programs: arms.workflow(course, name, seed, programs, free)

    def of_policy(stage: str, temperature: float = arms.TEMPERATURE) -> Play:
        scorer = combined(folder, fold, stage)
        return lambda seed, programs: arms.searched(course, arms.by_policy(scorer, seed, temperature), seed, programs)

    ledger = arms.ledger_of(fold.courses, 0)
    return [
        Arm("random, repeats", of_arena("random", False)), Arm("random", of_arena("random", True)),
        Arm("descend, repeats", of_arena("descend", False)), Arm(BAR, of_arena("descend", True)),
        Arm("ledger", lambda seed, programs: arms.searched(course, arms.by_ledger(ledger, seed), seed, programs)),
        Arm("policy, imitation alone", of_policy("imitated")), Arm("policy, no draws", of_policy(POLICY, 0.0)), Arm(POLICY, of_policy(POLICY)),
    ]  # fmt: skip


def evaluate(courses: Sequence[Course], by: str, folder: Path, seeds: Sequence[int], say: Callable[[str], None]) -> dict[str, Any]:
    """Plays each arm on each task. Raises `NotWeights` if the network of a fold was not trained."""
    found: dict[int, dict[str, list[list[float]]]] = {programs: {} for programs in AFTER}
    tasks: list[str] = []
    for fold in folds(courses, by):
        for course in fold.held_out:
            tasks.append(course.landscape.name)
            for arm in arms_of(course, fold, folder):
                for programs in AFTER:
                    curves = [arm.play(seed, programs) for seed in seeds]
                    found[programs].setdefault(arm.name, []).append([curve[programs - 1] for curve in curves])
            say(f"{course.landscape.name}: " + ", ".join(f"{name} {np.mean(rows[-1]):.4f}" for name, rows in found[AFTER[0]].items()))
    return {"tasks": tasks, "seeds": len(seeds), "after": {str(programs): _contest(rows, tasks) for programs, rows in found.items()}}


def _contest(rows: Mapping[str, list[list[float]]], tasks: Sequence[str]) -> dict[str, Any]:
    shares = {name: np.array(of_tasks) for name, of_tasks in rows.items()}
    means = {name: values.mean(axis=1) for name, values in shares.items()}
    return {
        "arms": {name: figure(values) for name, values in shares.items()},
        "policy less": {name: figure(shares[POLICY], values) for name, values in shares.items() if name != POLICY},
        "by task": {task: {name: round(float(values[at]), 4) for name, values in means.items()} for at, task in enumerate(tasks)},
    }


def figure(shares: Shares, less: Shares | None = None) -> dict[str, float]:
    """Returns the mean over tasks of the mean over seeds, with its interval, or the same for the difference between two arms on the same tasks."""
    draw = np.random.default_rng(20261127)
    tasks, seeds = shares.shape
    picks = draw.integers(0, tasks, size=(DRAWS, tasks))

    def redrawn(values: Shares) -> Shares:
        """Returns bootstrap means as an array of shape (draws, tasks)."""
        return np.stack([row[draw.integers(0, seeds, size=(DRAWS, seeds))].mean(axis=1) for row in values], axis=1)

    drawn = redrawn(shares) - (redrawn(less) if less is not None else 0.0)
    low, high = np.quantile(np.take_along_axis(drawn, picks, axis=1).mean(axis=1), [0.025, 0.975])
    mean = float((shares.mean(axis=1) - (less.mean(axis=1) if less is not None else 0.0)).mean())
    return {"mean": round(mean, 5), "low": round(float(low), 5), "high": round(float(high), 5)}


def table(found: Mapping[str, Any]) -> str:
    """Returns the results as a Markdown table."""
    names = list(found["after"][str(AFTER[0])]["arms"])
    lines = ["| | " + " | ".join(f"after {n} | policy less it" for n in AFTER) + " |", "|---|" + "---|" * (2 * len(AFTER))]
    for name in names:
        cells = []
        for programs in AFTER:
            contest = found["after"][str(programs)]
            cells += [_cell(contest["arms"][name]), _cell(contest["policy less"].get(name), signed=True)]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(value: Mapping[str, float] | None, signed: bool = False) -> str:
    if value is None:
        return ""
    mean, low, high = (f"{100 * value[key]:{'+' if signed else ''}.1f}" for key in ("mean", "low", "high"))
    return f"{mean} [{low}, {high}]"


def write(path: Path, content: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.new")
    scratch.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    scratch.replace(path)
