"""Measures the value of memory across runs by solving the same tasks with the same seeds, with and without the lessons of earlier runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev

from pydantic import BaseModel

from agents import show, sound
from agents.arguments import Subcommands, Unusable
from agents.events import Event
from agents.journal import TRACE, TraceDamaged
from agents.projection import Summary, project
from agents.strategies.ledger import Entry, Score, entries, score

# Two-sided 95 % quantiles of Student's t distribution by degrees of freedom. For degrees of freedom between two entries, the smaller entry is used.
STUDENT = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 7: 2.365, 10: 2.228, 15: 2.131, 20: 2.086, 30: 2.042, 60: 2.0}
Key = tuple[str, str, int]  # sha of the task, workflow, seed


class Pair(BaseModel):
    """One task with one seed, solved both ways. A speedup is relative to eager and confirmed in the full tier; it is 1 if nothing was faster."""

    task: str
    seed: int
    with_memory: float
    without: float
    calls: tuple[int, int]  # with, without
    tokens: tuple[int, int]


class Effect(BaseModel):
    pairs: list[Pair]
    ratio: float | None = None  # geometric mean of the speedups with memory divided by those without
    low: float | None = None  # lower end of its 95 % interval; None if there are fewer than two pairs
    high: float | None = None


def effect(with_memory: Sequence[Sequence[Event]], without: Sequence[Sequence[Event]]) -> Effect:
    """Returns the effect over pairs of runs, with and without memory, that have the same task, workflow and seed. Unfinished runs are left out."""
    given, other = _by_key(with_memory), _by_key(without)
    pairs = [_pair(given[key], other[key], key[2]) for key in sorted(given.keys() & other.keys())]
    logs = [math.log(pair.with_memory / pair.without) for pair in pairs]
    if not logs:
        return Effect(pairs=[])
    found = Effect(pairs=pairs, ratio=math.exp(mean(logs)))
    if len(logs) > 1:
        t = STUDENT[max(n for n in STUDENT if n <= len(logs) - 1)]
        half = t * stdev(logs) / math.sqrt(len(logs))
        found.low, found.high = math.exp(mean(logs) - half), math.exp(mean(logs) + half)
    return found


def offered(of: Sequence[Entry]) -> dict[str, Score]:
    """Returns two sets of strategy records: one for tries whose prompt showed changes made with the same strategy in earlier runs, and one for tries
    without such a hint."""
    return {"offered": score([e for e in of if e.offered]), "not offered": score([e for e in of if not e.offered])}


def _by_key(runs: Sequence[Sequence[Event]]) -> dict[Key, Summary]:
    found: dict[Key, Summary] = {}
    for events in runs:
        summary = project(events)
        if summary.state == "finished":
            found[summary.task.sha, summary.workflow, summary.started.seed] = summary
    return found


def _pair(given: Summary, other: Summary, seed: int) -> Pair:
    def faster(summary: Summary) -> float:
        return max(summary.speedup.ratio, 1.0) if summary.speedup is not None else 1.0

    def spent(unit: str) -> tuple[int, int]:
        return int(given.spent.get(unit, 0)), int(other.spent.get(unit, 0))

    name = given.task.name or "?"
    return Pair(task=name, seed=seed, with_memory=faster(given), without=faster(other), calls=spent("calls"), tokens=spent("tokens"))


def add_commands(commands: Subcommands) -> None:
    found = commands.add_parser("earned", help="the value of memory: runs with --learn-from against the same tasks and seeds without it")
    found.add_argument("with_memory", type=Path, metavar="WITH", help="finished runs that were given --learn-from")
    found.add_argument("without", type=Path, metavar="WITHOUT", help="finished runs of the same tasks, workflows and seeds without it")
    found.add_argument("--json", action="store_true")
    found.set_defaults(act=lambda args: act(args.with_memory, args.without, as_json=args.json))


def act(with_memory: Path, without: Path, *, as_json: bool = False) -> int:
    given, other = runs_in(with_memory), runs_in(without)
    found = effect(given, other)
    if as_json:
        print(found.model_dump_json(indent=1))
        return 0
    if not found.pairs:
        raise Unusable(f"no run in {with_memory} has one of the same task, workflow and seed in {without}")
    rows = [
        [p.task, str(p.seed), f"{p.with_memory:.2f}x", f"{p.without:.2f}x", f"{p.with_memory / p.without:.2f}", *map(str, (*p.calls, *p.tokens))]
        for p in found.pairs
    ]
    print(show.columns(["task", "seed", "with", "without", "ratio", "calls", "calls without", "tokens", "tokens without"], rows))
    interval = f" [{found.low:.2f}, {found.high:.2f}]" if found.low is not None and found.high is not None else ""
    print(f"with memory over without: {found.ratio:.2f}x{interval}, {len(found.pairs)} pair{'s' if len(found.pairs) != 1 else ''}")
    for name, record in offered([entry for events in given for entry in entries(events)]).items():
        rate = f"{100 * record.win_rate:.0f} %" if record.win_rate is not None else "none tried"
        print(f"methods {name}: {record.tried} tried, gained {rate}")
    return 0


def runs_in(folder: Path) -> list[list[Event]]:
    """Returns the events of each trace in a folder. Traces that cannot be read are left out."""
    found = []
    for trace in sorted(folder.rglob(TRACE)):
        try:
            found.append(sound.read(trace.parent)[0])
        except (OSError, TraceDamaged):
            continue
    return found
