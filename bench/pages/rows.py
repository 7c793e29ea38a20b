"""Results of a page benchmark: one row per figure, with its target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True)
class PageFigure:
    """`value` is in `unit`; `bar` is the maximum allowed, or None for a figure that is only reported. `samples` are the individual measurements."""

    name: str
    value: float
    unit: str
    bar: float | None = None
    samples: Sequence[float] = field(default_factory=list)

    @property
    def met(self) -> bool | None:
        return None if self.bar is None else self.value <= self.bar

    def as_json(self) -> dict:
        return asdict(self) | {"samples": [round(sample, 3) for sample in self.samples], "value": round(self.value, 3), "met": self.met}


def percentile(samples: Sequence[float], share: float) -> float:
    """Returns the nearest-rank percentile: the smallest sample that is at least as large as a fraction `share` (0 to 1) of all samples."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]


def table(rows: Sequence[PageFigure]) -> str:
    """Formats the rows as one table for a terminal."""
    width = max((len(row.name) for row in rows), default=4)
    lines = [f"{'what':{width}}  {'measured':>14}  {'bar':>10}"]
    for row in rows:
        sign = {True: "met", False: "MISSED", None: ""}[row.met]
        bar = "" if row.bar is None else f"{row.bar:g} {row.unit}"
        lines.append(f"{row.name:{width}}  {row.value:>10.5g} {row.unit:3}  {bar:>10}  {sign}".rstrip())
    return "\n".join(lines)
