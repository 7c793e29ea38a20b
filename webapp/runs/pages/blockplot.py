"""Computes the small plot of every timed block of a comparison, so that readers don't have to trust a single number."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from verifier.report import Comparison

WIDTH, HEIGHT = 320, 96
LEFT, RIGHT, TOP, BOTTOM = 40, 8, 8, 8


@dataclass(frozen=True)
class Dot:
    x: float
    y: float
    title: str


@dataclass(frozen=True)
class Tick:
    y: float
    label: str


@dataclass(frozen=True)
class BlockPlot:
    """Coordinates are in pixels within a box of `WIDTH` x `HEIGHT`. Each dot is the ratio of one block's medians."""

    dots: list[Dot]
    ticks: list[Tick]
    one: float  # y coordinate of the ratio 1.0, where the program is no faster
    middle: float  # y coordinate of the ratio
    band_top: float
    band_height: float
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    inner: int = WIDTH - LEFT - RIGHT


def block_plot(comparison: Comparison) -> BlockPlot | None:
    """Return the plot, or None if no samples were kept."""
    pairs = zip(comparison.program_samples_ms, comparison.baseline_samples_ms, strict=False)
    ratios = [(median(b) / median(p), median(p), median(b)) for p, b in pairs if p and b and median(p) > 0]
    if not ratios:
        return None
    interval = comparison.speedup
    values = [ratio for ratio, _, _ in ratios] + [interval.low, interval.high, 1.0]
    low, high = min(values), max(values)
    pad = (high - low) * 0.08 or 0.05
    low, high = low - pad, high + pad

    def y(value: float) -> float:
        return round(TOP + (high - value) / (high - low) * (HEIGHT - TOP - BOTTOM), 1)

    step = (WIDTH - LEFT - RIGHT) / max(1, len(ratios))
    dots = [
        Dot(round(LEFT + (i + 0.5) * step, 1), y(ratio), f"block {i + 1}: {ratio:.3f}x, program {program:.4g} ms, baseline {baseline:.4g} ms")
        for i, (ratio, program, baseline) in enumerate(ratios)
    ]
    shown = [interval.ratio] + ([1.0] if abs(y(1.0) - y(interval.ratio)) > 12 else [])
    ticks = [Tick(y(value), f"{value:.2f}x") for value in shown]
    return BlockPlot(dots, ticks, y(1.0), y(interval.ratio), y(interval.high), max(1.0, round(y(interval.low) - y(interval.high), 1)))
