"""Invented landscapes for tests and for trying out workflows before there is a measured table. They are never reported as results, and their tables
are marked as synthetic."""

from __future__ import annotations

import math
import random
from itertools import product

from agents.arena.landscape import Axis, Landscape, Table

AXES = (
    Axis("cuda-graph", "", (0, 1), 0, "cuda-graph"),
    Axis("row-cache", "g1", (0, 1), 1, "row-cache"),
    Axis("parallel-split", "g1", (0, 1), 0, "parallel-split"),
    Axis("vector", "g1", (1, 4), 1, "vectorise", numeric=True),
    Axis("block", "g1", (64, 128, 256, 512, 1024), 2, "block-size", numeric=True),
    Axis("work", "g1", (1, 2, 4, 8), 0, "work-per-thread", numeric=True),
)


def synthetic(tasks: int = 8, seed: int = 1) -> Table:
    return Table("synthetic", {"device_name": "none: made up"}, [landscape(f"synthetic_{n}", seed * 1000 + n) for n in range(1, tasks + 1)])


def landscape(name: str, seed: int) -> Landscape:
    """Returns a landscape in which the effects of single choices and of pairs multiply, each number has a single optimum, and some combinations do
    not build."""
    draw = random.Random(seed)
    floor, eager = 100.0, 100.0 * draw.uniform(1.5, 4.0)
    single = [[draw.gauss(0, 0.18) for _ in axis.values] for axis in AXES]
    for axis, effects in zip(AXES, single, strict=True):
        if axis.numeric and len(axis.values) > 2:
            valley, steep = draw.randrange(len(axis.values)), draw.uniform(0.03, 0.15)
            effects[:] = [steep * abs(at - valley) ** 1.5 for at in range(len(axis.values))]
    pairs = {(a, b): draw.gauss(0, 0.06) for a in range(len(AXES)) for b in range(a)}
    points = list(product(*(range(len(axis.values)) for axis in AXES)))
    logs = []
    for point in points:
        value = sum(single[axis][at] for axis, at in enumerate(point))
        logs.append(value + sum(strength * (point[a] % 2) * (point[b] % 2) for (a, b), strength in pairs.items()))
    least = min(logs)
    us = [floor * draw.uniform(1.02, 1.06) * math.exp(value - least) for value in logs]
    broken = [draw.random() < 0.02 for _ in points]
    classes = ["launch" if us[i] > 2.5 * floor else "latency" if us[i] > 1.6 * floor else "memory" for i in range(len(points))]
    return Landscape(
        name=name, what="A made-up landscape", axes=AXES, eager_us=eager, floor_us=floor, program=list(range(len(points))),
        status=[2 if bad else 0 for bad in broken], us=[None if bad else value for bad, value in zip(broken, us, strict=True)],
        spread=[None if bad else 0.01 for bad in broken], bottleneck=["" if bad else kind for bad, kind in zip(broken, classes, strict=True)],
        groups=("g1",), shares=[None] * len(points), launches=[None] * len(points), source=f"# {name}\n",
    )  # fmt: skip
