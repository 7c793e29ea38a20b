"""Folds and the folders that store their training runs. Folds hold out one kind of task at a time, one task at a time, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from agents.moving import scorer
from agents.moving.features import Floats
from agents.moving.scorer import NotWeights, Scorer
from agents.rl.plans.episodes import Course, kind_of
from agents.rl.plans.training import CannotTrain, Config, Trainer

BY = ("kind", "task", "none")
WHOLE = "all"  # the fold that holds out nothing
Layers = Sequence[tuple[Floats, Floats]]


@dataclass(frozen=True)
class Fold:
    name: str
    courses: tuple[Course, ...]  # training courses
    held_out: tuple[Course, ...]


def folds(courses: Sequence[Course], by: str) -> list[Fold]:
    """Returns folds that hold out every task exactly once, or a single fold with all tasks if nothing is held out."""
    if by == "none":
        return [Fold(WHOLE, tuple(courses), ())]
    key: Callable[[Course], str] = (lambda c: kind_of(c.landscape.name)) if by == "kind" else (lambda c: c.landscape.name)
    names = list(dict.fromkeys(map(key, courses)))
    if len(names) < 2:
        raise CannotTrain(f"the landscapes hold one {by} of tasks: nothing is left to train on when it is held out")
    return [Fold(name, tuple(c for c in courses if key(c) != name), tuple(c for c in courses if key(c) == name)) for name in names]


def train(fold: Fold, config: Config, seeds: int, folder: Path, about: dict[str, Any], say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Trains one network per seed in `FOLD/seed-N`, saving the weights after imitation and at the end. Returns the last metrics of each network."""
    last = []
    for seed in range(seeds):
        place = folder / fold.name / f"seed-{seed}"
        trainer = Trainer(fold.courses, replace(config, seed=seed), place, about, say)
        said = {**about, "tasks": sorted(c.landscape.name for c in fold.courses), "seed": seed}
        for stage, until in (("imitated", config.imitation), ("policy", config.steps)):
            metrics = trainer.train(until)
            if trainer.step == until:
                scorer.write(place / f"{stage}.json", trainer.network.layers(), {**said, "steps": until})
        last.append(metrics[-1])
    return last


def combined(folder: Path, fold: Fold, stage: str) -> Scorer:
    """Returns a single network whose output is the mean of a fold's networks. Raises `NotWeights` if there are none."""
    paths = sorted((folder / fold.name).glob(f"seed-*/{stage}.json"))
    if not paths:
        raise NotWeights(f"{folder / fold.name} contains no trained policy: python -m agents.rl plans train --out {folder}")
    return together([scorer.read(path) for path in paths])


def together(scorers: Sequence[Scorer]) -> Scorer:
    """Stacks the networks: the first layers are concatenated, the middle layers become diagonal blocks, and the last layers are averaged."""
    depth = len(scorers[0].layers)
    layers = []
    for number in range(depth):
        weights, biases = [one.layers[number][0] for one in scorers], [one.layers[number][1] for one in scorers]
        if number == 0:
            layers.append((np.concatenate(weights), np.concatenate(biases)))
        elif number < depth - 1:
            layers.append((_blocks(weights), np.concatenate(biases)))
        else:
            layers.append((np.concatenate(weights, axis=1) / len(scorers), np.mean(biases, axis=0)))
    return Scorer(tuple(layers), {**scorers[0].about, "seed": [one.about.get("seed") for one in scorers]})


def _blocks(matrices: Sequence[Floats]) -> Floats:
    found = np.zeros((sum(m.shape[0] for m in matrices), sum(m.shape[1] for m in matrices)))
    row = column = 0
    for matrix in matrices:
        found[row : row + matrix.shape[0], column : column + matrix.shape[1]] = matrix
        row, column = row + matrix.shape[0], column + matrix.shape[1]
    return found
