"""Turns metrics into charts. Each line of `metrics.jsonl` holds one step, with numbers and one level of nested groups of numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from webapp.learning.files import Problem, figure, lines_of, text

MOST_POINTS = 2000  # per chart; if there are more steps, only every second (third, ...) step and the last one are drawn
MOST_SERIES = 100
KEPT = 32  # number of files whose curves are cached
MEND = "Delete the line, or continue the training from its checkpoint: steps after it are written again. The other lines are shown."


class Chart(NamedTuple):
    key: str
    title: str
    about: str
    unit: str  # "", "%", "×"
    series: tuple[tuple[str, str], ...]  # metric and label; a metric that ends in "." stands for a whole group
    stacked: bool = False


CHARTS = (
    Chart("reward", "Reward", "Mean over the samples that were judged", "", (("reward", "reward"),)),
    Chart(
        "success", "Success and hacks", "Share that passed, of judged samples; share refused as cheating, of all", "%",
        (("success", "success"), ("hacks", "hack rate")),
    ),
    Chart("speedup", "Speedup", "Geometric mean of the lower bounds of programs that passed", "×", (("speedup", "speedup"),)),
    Chart(
        "parts", "Reward components", "Means over programs that passed", "",
        (("parts.base", "base"), ("parts.speed", "speed"), ("parts.own_weight", "weight of own kernels"), ("parts.factor", "rubric factor")),
    ),
    Chart("own", "Own kernels", "Share of the GPU time of programs that passed", "%", (("own_share", "own kernels"),)),
    Chart("verdicts", "Verdicts", "Samples of each step by verdict", "", (("verdicts.", ""),), stacked=True),
    Chart("rubric", "Rubric", "Mean score by criterion, 1 to 5", "", (("rubric.", ""),)),
    Chart("entropy", "Entropy", "Mean over the sampled tokens, in nats", "", (("entropy", "entropy"),)),
    Chart("length", "Length", "Tokens in a reply", "", (("length", "tokens"),)),
    Chart(
        "descent", "Gradient and clipping", "Norm of the gradient; share of clipped tokens; KL", "",
        (("norm", "gradient norm"), ("clipped", "clipped"), ("kl", "KL")),
    ),
    Chart(
        "seconds",
        "Time per step",
        "In seconds: the whole step, sampling, and the update",
        "",
        (("seconds", "all"), ("writing", "sampling"), ("updating", "update")),
    ),
)  # fmt: skip
SUPERVISED = (
    Chart("loss", "Loss", "Mean over the tokens of each step's replies, in nats", "", (("loss", "loss"),)),
    Chart("norm", "Gradient", "Norm of the gradient", "", (("norm", "gradient norm"),)),
    Chart("seconds", "Time per step", "In seconds", "", (("seconds", "seconds"),)),
)


@dataclass
class Curves:
    """All curves of a file. Each array in `series` has one value or None per element of `steps`."""

    steps: list[int] = field(default_factory=list)
    series: dict[str, list[float | None]] = field(default_factory=dict)
    problem: Problem | None = None
    stamp: str = ""  # changes whenever the file changes

    @property
    def step(self) -> int:
        return self.steps[-1] if self.steps else 0

    def last(self, name: str) -> float | None:
        """Returns the latest available value."""
        return next((value for value in reversed(self.series.get(name, [])) if value is not None), None)

    def add(self, step: int, figures: dict[str, float | None]) -> None:
        for name, value in figures.items():
            if name not in self.series and len(self.series) < MOST_SERIES:
                self.series[name] = [None] * len(self.steps)
            if name in self.series:
                self.series[name].append(value)
        self.steps.append(step)
        for values in self.series.values():
            values += [None] * (len(self.steps) - len(values))

    def drawn(self, charts: tuple[Chart, ...]) -> dict[str, Any]:
        """Returns the data for the page's script: the steps, and the charts with their lines."""
        pace = max(1, -(-len(self.steps) // MOST_POINTS))
        places = sorted({*range(0, len(self.steps), pace), *([len(self.steps) - 1] if self.steps else [])})
        found = []
        for chart in charts:
            lines = [(label, self.series[name]) for name, label in self._named(chart)]
            shown = [
                {"name": label, "values": [_short(values[at]) for at in places]} for label, values in lines if any(v is not None for v in values)
            ]
            found.append({"key": chart.key, "title": chart.title, "unit": chart.unit, "stacked": chart.stacked, "lines": shown})
        return {"steps": [self.steps[at] for at in places], "charts": found}

    def _named(self, chart: Chart) -> list[tuple[str, str]]:
        found = []
        for name, label in chart.series:
            if name.endswith("."):
                found += [(one, one.removeprefix(name).replace("_", " ")) for one in sorted(self.series) if one.startswith(name)]
            elif name in self.series:
                found.append((name, label))
        return found


def curves_of(path: Path) -> Curves:
    """Reads the curves. Never raises. If the file has problems, the first one is stored in the result's `problem`."""
    try:
        stat = path.stat()
    except OSError:
        return Curves()
    return _read(path, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=KEPT)
def _read(path: Path, changed: int, size: int) -> Curves:
    found = Curves(stamp=f"{changed}-{size}")
    try:
        for line in lines_of(path, MEND):
            try:
                if isinstance(line.value, Problem):
                    raise line.value
                step = _step(line.value, found.step, f"{path.name}, line {line.number}")
                found.add(step, _figures(line.value, f"{path.name}, line {line.number}"))
            except Problem as problem:
                found.problem = found.problem or problem
    except Problem as problem:
        found.problem = problem
    return found


def _step(line: dict[str, Any], before: int, place: str) -> int:
    step = line.get("step")
    if not isinstance(step, int) or isinstance(step, bool) or not 0 < step < 1 << 53:
        raise Problem(place, "it doesn't say which step it is.", MEND)
    if step <= before:
        raise Problem(place, f"step {step} follows step {before}: two trainings may be writing to this folder.", MEND)
    return step


def _figures(line: dict[str, Any], place: str) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for name, value in line.items():
        inner = value.items() if isinstance(value, dict) else [("", value)]
        for part, one in inner:
            if one is not None and figure(one) is None:
                raise Problem(place, f"{text(name, 40)}{f'.{text(part, 40)}' if part else ''} isn't a number.", MEND)
            found[text(f"{name}.{part}" if part else name, 80)] = figure(one)
    found.pop("step", None)
    return found


def _short(value: float | None) -> float | None:
    return value if value is None else float(f"{value:.5g}")
