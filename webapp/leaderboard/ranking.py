"""The leaderboard for one selection: entries and baselines with figures over the same tasks, and the results that are listed separately."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from verifier.report import CLOCK
from webapp.accounts.access import Asker
from webapp.leaderboard.arrays import Columns, Counted
from webapp.leaderboard.columns import COSTS, SORTED, USUAL
from webapp.leaderboard.entries import Name, named
from webapp.leaderboard.filters import MANY, SOLVING, Filters
from webapp.leaderboard.models import Entry, Setup, Subject
from webapp.leaderboard.reading import Scope, counted, left_out, selections, task_names
from webapp.leaderboard.scoring import Interval, fast, geometric_means
from webapp.leaderboard.suites import Choice, Chosen, choices, choose, natural

BASELINES = {"eager": "PyTorch eager", "graph": "eager in a CUDA graph", "compile": "torch.compile", "autotune": "torch.compile, max-autotune"}
MEASURED = ("eager", "eager_low", "eager_high", "best", "best_low", "best_high", "compile", "autotune", "graph")


@dataclass(frozen=True)
class Task:
    subject: int | None  # None if the task was never tried under this setup
    name: str


@dataclass(frozen=True)
class BoardRow:
    """The figures of one entry or one baseline over the selected tasks. Each cost is the mean over the runs that count."""

    key: str  # an entry's number, or a baseline's name
    name: Name
    baseline: bool
    passed: int  # tasks with a confirmed solution in a selected class
    tried: int
    runs: int
    other_class: int  # tasks with a confirmed solution in another class
    left_out: int
    eager: Interval
    best: Interval
    fast: float  # share of all tasks that are solved with a speedup above p
    sure: float  # the same for the lower bound of the interval
    costs: Mapping[str, float | None] = field(default_factory=lambda: dict.fromkeys(column.key for column in COSTS))  # keyed by column key
    ratios: list[float] = field(default_factory=list)  # ratios of the solved tasks against the selected baseline, ascending
    rank: int | None = None

    def against(self, what: str) -> Interval:
        """Return the geometric mean against eager or against "best", the best baseline of each task."""
        return self.best if what == "best" else self.eager


@dataclass(frozen=True)
class Grid:
    """The data of the heat map and the drill-down, as entries x tasks."""

    entries: list[int]
    rows: Columns | None
    at: np.ndarray  # entries x tasks: positions in `rows`, or -1 if there is no row
    left_out: dict[tuple[int, int], int]  # the result that a verdict excluded, keyed by the positions of entry and task

    def row(self, entry: int, task: int) -> Counted | None:
        at = self.at[entry, task]
        return None if at < 0 or self.rows is None else self.rows.row(at)


NOTHING = Grid([], None, np.empty((0, 0), dtype=np.int64), {})


@dataclass(frozen=True)
class Board:
    filters: Filters
    setup: Setup | None
    suite: Chosen | None
    tasks: list[Task]  # tasks that count
    flagged: list[Task]  # tasks whose results prove little
    rows: list[BoardRow]
    left_out: int
    grid: Grid
    options: Options
    unknown_suite: bool = False

    @property
    def entries(self) -> list[BoardRow]:
        return [row for row in self.rows if not row.baseline]


@dataclass(frozen=True)
class Options:
    """The options that the filters offer. They never reveal anything that the viewer may not see."""

    suites: list[Choice] = field(default_factory=list)
    devices: list[tuple[str, str]] = field(default_factory=list)  # model, name
    precisions: list[str] = field(default_factory=list)
    modes: list[str] = field(default_factory=list)
    workflows: list[str] = field(default_factory=list)
    llms: list[str] = field(default_factory=list)
    planners: list[str] = field(default_factory=list)
    coders: list[str] = field(default_factory=list)
    languages: list[str] = field(default_factory=list)
    clocks: list[tuple[str, int]] = field(default_factory=list)  # earlier versions of the clock, each with its number of results


@dataclass(frozen=True)
class Known:
    """The rows to rank, before any aggregation."""

    scope: Scope
    entries: dict[int, Entry]
    board: Board  # without rows


def known(asker: Asker, filters: Filters) -> Known:
    scope = Scope.of(asker, filters)
    available = selections(scope)
    setups = Setup.objects.in_bulk({setup for setup, _, _ in available})
    entries = Entry.objects.select_related("team").in_bulk({entry for _, entry, _ in available})
    options = replace(_options(setups, entries, choices(asker)), clocks=_earlier(setups, available))
    asked = filters.suite if filters.suite != MANY else ""
    suite = choose(asker, asked) if asked else None
    setup = _setup(setups, available, filters)
    empty = Board(filters, setup, suite, [], [], [], 0, NOTHING, options, unknown_suite=bool(asked) and suite is None)
    return Known(scope, entries, empty)


def board(asker: Asker, filters: Filters) -> Board:
    found = known(asker, filters)
    scope, entries, empty = found.scope, found.entries, found.board
    setup, suite = empty.setup, empty.suite
    if setup is None or empty.unknown_suite:
        return empty
    wanted = [entry for entry in entries.values() if _wanted(entry, filters)]
    subjects = dict(Subject.objects.filter(sha__in=suite.names).values_list("sha", "pk")) if suite else None
    only = list(subjects.values()) if subjects is not None else None
    narrowed = [entry.pk for entry in wanted] if len(wanted) < len(entries) else None
    rows = counted(scope, setup.pk, narrowed, only)
    judged = left_out(scope, setup.pk, narrowed, only)
    tasks, flagged = _tasks(rows, judged, suite, subjects)
    ranked, grid = _rows(filters, rows, judged, tasks, entries)
    return replace(empty, tasks=tasks, flagged=flagged, rows=ranked, left_out=len(judged), grid=grid)


def _setup(setups: dict[int, Setup], available: list[tuple[int, int, int]], filters: Filters) -> Setup | None:
    """Return the setup with the most results among those that match the filters."""
    size: Counter[int] = Counter()
    for setup, _, rows in available:
        size[setup] += rows
    asked = {"device_model": filters.device, "precision": filters.precision, "mode": filters.mode, "clock": int(filters.clock or CLOCK)}
    agreeing = [s for s in setups.values() if all(getattr(s, name) == value for name, value in asked.items() if value)]
    # If no device was requested, GPUs come before CPUs because results are mostly compared on GPUs.
    return max(agreeing, key=lambda s: (s.device_kind == "cuda" or bool(filters.device), size[s.pk], -s.pk), default=None)


def _earlier(setups: dict[int, Setup], available: list[tuple[int, int, int]]) -> list[tuple[str, int]]:
    """Return the earlier versions of the clock, each with its number of results. Their results are ranked separately."""
    size: Counter[int] = Counter()
    for setup, _, rows in available:
        size[setups[setup].clock] += rows
    return [(str(clock), rows) for clock, rows in sorted(size.items()) if clock != CLOCK]


def _wanted(entry: Entry, filters: Filters) -> bool:
    exact = {"workflow": filters.workflow, "planner": filters.planner, "coder": filters.coder, "language": filters.language}
    if any(value and getattr(entry, name) != value for name, value in exact.items()):
        return False
    models = models_of(entry)
    return not filters.llm or (filters.llm in models if filters.llm != "built-in" else not models and bool(entry.coder))


def models_of(entry: Entry) -> set[str]:
    """Return the language model profiles that play a role."""
    return {entry.planner, entry.coder, entry.judge} - {"", "built-in"}


def _options(setups: dict[int, Setup], entries: dict[int, Entry], suites: list[Choice]) -> Options:
    def of(name: str) -> list[str]:
        return sorted({getattr(entry, name) for entry in entries.values()} - {""})

    models = sorted({model for entry in entries.values() for model in models_of(entry)})
    return Options(
        suites=suites,
        devices=sorted({s.device_model: s.device_name for s in setups.values()}.items(), key=lambda pair: pair[1]),
        precisions=sorted({s.precision for s in setups.values()}),
        modes=sorted({s.mode for s in setups.values()}),
        workflows=of("workflow"),
        llms=[*(["built-in"] if any(entry.coder == "built-in" for entry in entries.values()) else []), *models],
        planners=of("planner"),
        coders=of("coder"),
        languages=of("language"),
    )


def _tasks(rows: Columns, judged: list[tuple[int, int, int]], suite: Chosen | None, subjects: dict[str, int] | None) -> tuple[list[Task], list[Task]]:
    """Return the tasks in order and, separately, those whose results prove little. If no suite is selected, these are all tasks that have a
    result."""
    flagged = set(rows.subject[rows.flagged].tolist())
    if suite is not None and subjects is not None:
        tasks = [Task(subjects.get(sha), name) for sha, name in suite.names.items()]
    else:
        of = {subject: result for _, subject, result in judged} | dict(zip(rows.subject.tolist(), rows.result.tolist(), strict=True))
        names = task_names(list(of.values()))
        tasks = sorted((Task(subject, names.get(subject, "task")) for subject in of), key=lambda task: natural(task.name))
    return [task for task in tasks if task.subject not in flagged], [task for task in tasks if task.subject in flagged]


def _rows(
    filters: Filters, rows: Columns, judged: list[tuple[int, int, int]], tasks: list[Task], entries: dict[int, Entry]
) -> tuple[list[BoardRow], Grid]:
    order = sorted({*rows.entry.tolist(), *(entry for entry, _, _ in judged)})
    at_entry = {entry: position for position, entry in enumerate(order)}
    at_task = {task.subject: position for position, task in enumerate(tasks) if task.subject is not None}
    down, across = np.searchsorted(order, rows.entry), _positions(rows.subject, at_task)
    there = np.flatnonzero(across >= 0)
    at = np.full((len(order), len(tasks)), -1)
    at[down[there], across[there]] = there
    out = {(at_entry[entry], at_task[subject]): result for entry, subject, result in judged if subject in at_task}
    grid = Grid(order, rows, at, out)
    measured = {name: _spread(getattr(rows, name), at, np.nan) for name in MEASURED}
    confirmed = _spread(rows.confirmed, at, False)
    solved = _spread(rows.of_class(SOLVING[filters.program_class]), at, False)
    return _ranked(filters, _entries(filters, grid, rows, entries, measured, confirmed, solved) + _baselines(filters, measured, confirmed)), grid


def _positions(subjects: np.ndarray, at_task: dict[int, int]) -> np.ndarray:
    """Return the position of each subject among the tasks; -1 if the subject is not one of them."""
    if not at_task:
        return np.full(len(subjects), -1)
    known, position = np.array(sorted(at_task.items())).T
    near = np.minimum(np.searchsorted(known, subjects), len(known) - 1)
    return np.where(known[near] == subjects, position[near], -1)


def _spread(column: np.ndarray, at: np.ndarray, nothing: float | bool) -> np.ndarray:
    """Return a column as an array of shape entries x tasks."""
    spread: np.ndarray = np.append(column, np.array(nothing, dtype=column.dtype))[at]
    return spread


def _entries(
    filters: Filters, grid: Grid, rows: Columns, entries: dict[int, Entry], measured: dict[str, np.ndarray], confirmed: np.ndarray, solved: np.ndarray
) -> list[BoardRow]:
    means = _means(measured, solved)
    against = filters.against or "eager"
    shares = {name: fast(measured[name], solved, filters.p) for name in (against, f"{against}_low")}
    outs = Counter(position for position, _ in grid.left_out)
    found = []
    for position, entry in enumerate(grid.entries):
        mine = grid.at[position][grid.at[position] >= 0]
        if not len(mine) and not outs[position]:
            continue  # the entry has only flagged tasks
        ratios = measured[against][position][solved[position]]
        found.append(
            BoardRow(
                key=str(entry), name=named(entries[entry]) if entry in entries else Name("–", ""), baseline=False, passed=int(solved[position].sum()),
                tried=len(mine), runs=int(rows.runs[mine].sum()), other_class=int((confirmed[position] & ~solved[position]).sum()),
                left_out=outs[position], eager=means["eager"][position], best=means["best"][position], fast=float(shares[against][position]),
                sure=float(shares[f"{against}_low"][position]), costs=_costs(rows, mine), ratios=np.sort(ratios).tolist(),
            )
        )  # fmt: skip
    return found


def _means(measured: dict[str, np.ndarray], solved: np.ndarray) -> dict[str, list[Interval]]:
    """Return the means against eager and against the best baseline, computed from the same draws."""
    ratios, low, high = (np.concatenate([measured[f"{name}{end}"] for name in ("eager", "best")]) for end in ("", "_low", "_high"))
    found = geometric_means(ratios, low, high, np.concatenate([solved, solved]))
    return {"eager": found[: len(solved)], "best": found[len(solved) :]}


def _baselines(filters: Filters, measured: dict[str, np.ndarray], confirmed: np.ndarray) -> list[BoardRow]:
    """Return the baselines, read from the reports of the same rows.

    The value for a task is the geometric mean over all of its rows. The intervals reflect only the choice of tasks.
    """
    against = filters.against or "eager"
    ratios, solved = {}, {}
    for name in BASELINES:
        for other in ("eager", "best"):
            with np.errstate(divide="ignore", invalid="ignore"):
                logs = np.where(confirmed, np.log(measured[other]) - np.log(measured[name]), np.nan)
            seen = ~np.isnan(logs)
            counts = seen.sum(axis=0)
            means = np.divide(np.where(seen, logs, 0.0).sum(axis=0), counts, out=np.zeros(len(counts)), where=counts > 0)
            ratios[name, other], solved[name] = np.exp(means), counts > 0
    there = [name for name in BASELINES if solved[name].any()]
    if not there:
        return []
    covered = np.array([solved[name] for name in there])
    stacked = {other: np.array([ratios[name, other] for name in there]) for other in ("eager", "best")}
    nothing = dict.fromkeys(("eager_low", "eager_high", "best_low", "best_high"), np.full(covered.shape, np.nan))
    means = _means(stacked | nothing, covered)
    shares = fast(stacked[against], covered, filters.p)
    return [
        BoardRow(
            key=name, name=Name(BASELINES[name], "baseline, measured with every result"), baseline=True, passed=int(covered[at].sum()),
            tried=int(covered[at].sum()), runs=0, other_class=0, left_out=0, eager=means["eager"][at], best=means["best"][at],
            fast=float(shares[at]), sure=float(shares[at]), ratios=np.sort(stacked[against][at][covered[at]]).tolist(),
        )
        for at, name in enumerate(there)
    ]  # fmt: skip


def _ranked(filters: Filters, rows: list[BoardRow]) -> list[BoardRow]:
    """Return the rows in the requested order. Baselines are placed by value but have no rank."""
    column = SORTED[filters.sort or USUAL]

    def key(row: BoardRow) -> tuple[Any, ...]:
        mean, value = row.against(filters.against).ratio, column.value(row, filters.against)
        if column.least_first:
            return (row.baseline, value is None, value or 0.0, -mean)
        return (value is None, -(value or 0.0), -mean)

    rank, found = 0, []
    for row in sorted(rows, key=key):
        rank += not row.baseline
        found.append(replace(row, rank=None if row.baseline else rank))
    return found


def _costs(rows: Columns, which: np.ndarray) -> dict[str, float | None]:
    """Return the costs over the selected rows, keyed by column key."""
    return {column.key: _told(column.over, rows.costs[column.source][which]) for column in COSTS}


def _told(over: str, values: np.ndarray) -> float | None:
    """Return the mean or the median of the known values."""
    values = values[~np.isnan(values)]
    return float(np.median(values) if over == "median" else np.mean(values)) if len(values) else None
