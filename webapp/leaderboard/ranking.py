"""The leaderboard of one selection: entries with their figures over the same tasks, baselines beside them, and what stands apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from webapp.accounts.access import Asker
from webapp.leaderboard.entries import Name, named
from webapp.leaderboard.filters import MANY, Filters
from webapp.leaderboard.models import Entry, Setup, Subject
from webapp.leaderboard.reading import Counted, Scope, counted, left_out, selections, task_names
from webapp.leaderboard.scoring import Interval, fast, geometric_means
from webapp.leaderboard.suites import Choice, Chosen, choices, choose, natural

BASELINES = {"eager": "PyTorch eager", "graph": "eager in a CUDA graph", "compile": "torch.compile", "autotune": "torch.compile, max-autotune"}
MEASURED = ("eager", "eager_low", "eager_high", "best", "best_low", "best_high", "compile", "autotune", "graph")
LOWER_IS_BETTER = ("dollars", "tokens", "seconds", "first")


@dataclass(frozen=True)
class Task:
    subject: int | None  # None: nobody has tried it under this setup
    name: str


@dataclass(frozen=True)
class Row:
    """One entry, or one baseline, over the tasks of the selection. Costs are means over the runs that count."""

    key: str  # of an entry its number, of a baseline its name
    name: Name
    baseline: bool
    passed: int  # tasks with a solution: confirmed, and of a class that was selected
    tried: int
    runs: int
    other_class: int  # confirmed, of another class
    left_out: int
    eager: Interval
    best: Interval
    fast: float  # share of the tasks that are solved and more than p times as fast
    sure: float  # ... with the lower bound of the interval
    dollars: float | None = None
    tokens: float | None = None
    seconds: float | None = None
    first: float | None = None  # median seconds to the first program faster than eager, of the runs that had one
    ratios: list[float] = field(default_factory=list)  # of the tasks that were solved, ascending, against what was selected
    rank: int | None = None


@dataclass(frozen=True)
class Grid:
    """Entries x tasks, NaN where there is nothing: what the heat map and the drill-down show."""

    entries: list[int]
    rows: dict[tuple[int, int], Counted]  # by entry and task, as positions
    left_out: dict[tuple[int, int], int]  # ... to the result that a verdict took out


@dataclass(frozen=True)
class Board:
    filters: Filters
    setup: Setup | None
    suite: Chosen | None
    tasks: list[Task]  # that count
    flagged: list[Task]  # that prove little
    rows: list[Row]
    left_out: int
    grid: Grid
    options: Options
    unknown_suite: bool = False

    @property
    def entries(self) -> list[Row]:
        return [row for row in self.rows if not row.baseline]


@dataclass(frozen=True)
class Options:
    """What the filters offer. What a viewer may not see is nowhere in them."""

    suites: list[Choice] = field(default_factory=list)
    devices: list[tuple[str, str]] = field(default_factory=list)  # model, name
    precisions: list[str] = field(default_factory=list)
    modes: list[str] = field(default_factory=list)
    workflows: list[str] = field(default_factory=list)
    llms: list[str] = field(default_factory=list)
    planners: list[str] = field(default_factory=list)
    coders: list[str] = field(default_factory=list)
    languages: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Known:
    """What there is to rank before anything is counted."""

    scope: Scope
    entries: dict[int, Entry]
    board: Board  # without rows


def known(asker: Asker, filters: Filters) -> Known:
    scope = Scope.of(asker, filters)
    available = selections(scope)
    setups = Setup.objects.in_bulk({setup for setup, _, _ in available})
    entries = Entry.objects.select_related("team").in_bulk({entry for _, entry, _ in available})
    options = _options(setups, entries, choices(asker))
    asked = filters.suite if filters.suite != MANY else ""
    suite = choose(asker, asked) if asked else None
    setup = _setup(setups, available, filters)
    empty = Board(filters, setup, suite, [], [], [], 0, Grid([], {}, {}), options, unknown_suite=bool(asked) and suite is None)
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
    """Of those that agree with the filters, the one with the most results."""
    size = Counter()
    for setup, _, rows in available:
        size[setup] += rows
    asked = {"device_model": filters.device, "precision": filters.precision, "mode": filters.mode}
    agreeing = [s for s in setups.values() if all(getattr(s, name) == value for name, value in asked.items() if value)]
    # A GPU before a CPU where nothing was asked for: it is what results are compared on.
    return max(agreeing, key=lambda s: (s.device_kind == "cuda" or bool(filters.device), size[s.pk], -s.pk), default=None)


def _wanted(entry: Entry, filters: Filters) -> bool:
    exact = {"workflow": filters.workflow, "planner": filters.planner, "coder": filters.coder, "language": filters.language}
    if any(value and getattr(entry, name) != value for name, value in exact.items()):
        return False
    models = models_of(entry)
    return not filters.llm or (filters.llm in models if filters.llm != "built-in" else not models and bool(entry.coder))


def models_of(entry: Entry) -> set[str]:
    """Profiles of language models that play a role."""
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


def _tasks(
    rows: list[Counted], judged: list[tuple[int, int, int]], suite: Chosen | None, subjects: dict[str, int] | None
) -> tuple[list[Task], list[Task]]:
    """Tasks in their order, those that prove little apart. Without a suite, every task that somebody has tried."""
    flagged = {row.subject for row in rows if row.flagged}
    if suite is not None and subjects is not None:
        tasks = [Task(subjects.get(sha), name) for sha, name in suite.names.items()]
    else:
        of = {subject: result for _, subject, result in judged} | {row.subject: row.result for row in rows}
        names = task_names(list(of.values()))
        tasks = sorted((Task(subject, names.get(subject, "task")) for subject in of), key=lambda task: natural(task.name))
    return [task for task in tasks if task.subject not in flagged], [task for task in tasks if task.subject in flagged]


def _rows(
    filters: Filters, rows: list[Counted], judged: list[tuple[int, int, int]], tasks: list[Task], entries: dict[int, Entry]
) -> tuple[list[Row], Grid]:
    order = sorted({row.entry for row in rows} | {entry for entry, _, _ in judged})
    at_entry = {entry: position for position, entry in enumerate(order)}
    at_task = {task.subject: position for position, task in enumerate(tasks) if task.subject is not None}
    placed = {(at_entry[row.entry], at_task[row.subject]): row for row in rows if row.subject in at_task}
    out = {(at_entry[entry], at_task[subject]): result for entry, subject, result in judged if subject in at_task}
    measured = _measured(placed, len(order), len(tasks))
    confirmed, solved = np.zeros((2, len(order), len(tasks)), dtype=bool)
    for place, row in placed.items():
        confirmed[place] = row.confirmed
        solved[place] = row.confirmed and filters.solves(row.program_class)
    found = _entries(filters, order, entries, placed, out, measured, confirmed, solved) + _baselines(filters, measured, confirmed)
    return _ranked(filters, found), Grid(order, placed, out)


def _measured(placed: dict[tuple[int, int], Counted], entries: int, tasks: int) -> dict[str, np.ndarray]:
    found = {name: np.full((entries, tasks), np.nan) for name in MEASURED}
    if placed:
        across, down = np.array(list(placed)).T
        columns = list(zip(*placed.values(), strict=True))
        for name in MEASURED:
            found[name][across, down] = np.array(columns[Counted._fields.index(name)], dtype=np.float64)
    return found


def _entries(filters, order, entries, placed, out, measured, confirmed, solved) -> list[Row]:
    means = {name: geometric_means(measured[name], measured[f"{name}_low"], measured[f"{name}_high"], solved) for name in ("eager", "best")}
    against = filters.against or "eager"
    shares = {name: fast(measured[name], solved, filters.p) for name in (against, f"{against}_low")}
    own: dict[int, list[Counted]] = {}
    for (position, _), row in placed.items():
        own.setdefault(position, []).append(row)
    outs = Counter(position for position, _ in out)
    found = []
    for position, entry in enumerate(order):
        mine = own.get(position, [])
        if not mine and not outs[position]:
            continue  # only flagged tasks
        ratios = measured[against][position][solved[position]]
        found.append(
            Row(
                key=str(entry), name=named(entries[entry]) if entry in entries else Name("–", ""), baseline=False, passed=int(solved[position].sum()),
                tried=len(mine), runs=sum(row.runs for row in mine), other_class=int((confirmed[position] & ~solved[position]).sum()),
                left_out=outs[position], eager=means["eager"][position], best=means["best"][position], fast=float(shares[against][position]),
                sure=float(shares[f"{against}_low"][position]), dollars=_mean([row.dollars for row in mine]),
                tokens=_mean([row.tokens for row in mine]), seconds=_mean([row.seconds for row in mine if row.seconds is not None]),
                first=_median([row.faster_after for row in mine if row.faster_after is not None]), ratios=sorted(map(float, ratios)),
            )
        )  # fmt: skip
    return found


def _baselines(filters: Filters, measured: dict[str, np.ndarray], confirmed: np.ndarray) -> list[Row]:
    """From the reports of the same rows: of each task the geometric mean over all of them. Their intervals are over tasks alone."""
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
    nothing = np.full(covered.shape, np.nan)
    stacked = {other: np.array([ratios[name, other] for name in there]) for other in ("eager", "best")}
    means = {other: geometric_means(stacked[other], nothing, nothing, covered) for other in stacked}
    shares = fast(stacked[against], covered, filters.p)
    return [
        Row(
            key=name, name=Name(BASELINES[name], "baseline, measured with every result"), baseline=True, passed=int(covered[at].sum()),
            tried=int(covered[at].sum()), runs=0, other_class=0, left_out=0, eager=means["eager"][at], best=means["best"][at],
            fast=float(shares[at]), sure=float(shares[at]), ratios=sorted(map(float, stacked[against][at][covered[at]])),
        )
        for at, name in enumerate(there)
    ]  # fmt: skip


def _ranked(filters: Filters, rows: list[Row]) -> list[Row]:
    """In the order that was asked for; baselines stand where they belong, without a rank."""
    against = filters.against or "eager"

    def key(row: Row) -> tuple:
        mean = getattr(row, against).ratio
        sort = filters.sort or "geo"
        if sort in LOWER_IS_BETTER:
            value = getattr(row, sort)
            return (row.baseline, value is None, value or 0.0, -mean)
        return (-{"geo": mean, "passed": row.passed, "fast": row.fast}[sort], -mean)

    rank, found = 0, []
    for row in sorted(rows, key=key):
        rank += not row.baseline
        found.append(replace(row, rank=None if row.baseline else rank))
    return found


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _median(values: Sequence[float]) -> float | None:
    return float(np.median(values)) if values else None
