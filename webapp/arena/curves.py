"""Computes the geometry of the plot that shows each workflow's progress against the number of programs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from agents.arena.scoring import geometric_mean

WIDTH, HEIGHT = 720, 260
LEFT, RIGHT, TOP, BOTTOM = 48, 112, 16, 36
LABEL = 14  # minimum distance between line labels, in pixels
MOST_TICKS = 12


@dataclass(frozen=True)
class Line:
    workflow: str
    points: str  # for an SVG polyline
    series: int
    end: tuple[float, float]
    label_y: float
    last: float
    title: str


@dataclass(frozen=True)
class Tick:
    at: float
    label: str


@dataclass(frozen=True)
class Plot:
    lines: list[Line]
    across: list[Tick]
    up: list[Tick]
    one: float
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    floor: int = HEIGHT - BOTTOM


def plot(curves: dict[str, list[list[float]]]) -> Plot | None:
    """Plots geometric means over all finished runs. A run that has ended keeps its last value. Returns None if no run has finished."""
    length = max((len(curve) for runs in curves.values() for curve in runs), default=0)
    if length < 2:
        return None
    means = {
        workflow: [geometric_mean([curve[min(at, len(curve) - 1)] for curve in runs]) for at in range(length)]
        for workflow, runs in sorted(curves.items())
    }
    highest = max(1.1, max(values[-1] for values in means.values())) * 1.05

    def x(at: int) -> float:
        return round(LEFT + at / (length - 1) * (WIDTH - LEFT - RIGHT), 1)

    def y(value: float) -> float:
        return round(TOP + (1 - math.log(value) / math.log(highest)) * (HEIGHT - TOP - BOTTOM), 1)

    order = sorted(means, key=lambda workflow: -means[workflow][-1])
    places: dict[str, float] = {}
    for workflow in order:  # labels from top to bottom without overlaps
        wanted = y(means[workflow][-1]) + 4
        places[workflow] = max(wanted, max(places.values(), default=-LABEL) + LABEL)
    excess = max(0.0, max(places.values()) - (HEIGHT - BOTTOM))
    series = {workflow: number for number, workflow in enumerate(means, start=1)}
    lines = [
        Line(
            workflow, " ".join(f"{x(at)},{y(value)}" for at, value in enumerate(means[workflow])), series[workflow],
            (x(length - 1), y(means[workflow][-1])), round(places[workflow] - excess, 1), means[workflow][-1],
            f"{workflow}: {means[workflow][-1]:.2f}x after {length - 1} programs, over {len(curves[workflow])} runs",
        )
        for workflow in order
    ]  # fmt: skip
    step = max(1, math.ceil((length - 1) / MOST_TICKS))
    return Plot(lines, [Tick(x(at), str(at)) for at in range(0, length, step)], [Tick(y(v), f"{v:g}×") for v in _round_values(highest)], y(1.0))


def _round_values(highest: float) -> list[float]:
    """Returns three to six axis values, including 1."""
    steps = next(s for s in (0.02, 0.05, 0.1, 0.2, 0.25, 0.5, 1, 2, 5, 10, 50, 1000) if (highest - 1) / s <= 6)
    return [round(1 + n * steps, 2) for n in range(int((highest - 1) / steps) + 1)]
