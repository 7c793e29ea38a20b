"""Exports the leaderboard as documented rows of JSON or CSV.

The web app serves their JSON schema, and docs/reference/leaderboard.md explains the fields. Every field name includes its unit. A ratio is the
baseline's time divided by the program's, so a ratio above 1 means that the program is faster.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from io import StringIO
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, Field, create_model

from verifier.report import CLOCK
from webapp.leaderboard.columns import COLUMNS, Column, Kind
from webapp.leaderboard.ranking import Board, BoardRow
from webapp.leaderboard.scoring import Interval

VERSION = 4
INTERVALS = tuple(column.exported for column in COLUMNS if column.kind == "interval")  # columns of an entry


class Ratio(BaseModel):
    ratio: float
    low: float = Field(description="lower bound of the 95 % interval")
    high: float = Field(description="upper bound of the 95 % interval")

    @classmethod
    def of(cls, interval: Interval) -> Ratio:
        return cls(ratio=interval.ratio, low=interval.low, high=interval.high)


class Measured(Ratio):
    baseline_ms: float = Field(description="median time of the baseline in milliseconds")


class Counts(BaseModel):
    """One line of the leaderboard. Each cost is the mean over the runs that count, one run per task."""

    rank: int | None = Field(description="null: a baseline")
    entry: str
    entry_id: str
    baseline: bool
    tasks: int = Field(description="of the selection, without those that prove little")
    tried: int = Field(description="tasks that count a run of this entry, solved or not")
    runs: int = Field(description="all runs of the entry; its medians are ranked")
    other_class: int = Field(description="confirmed, but of a class that was not selected")
    left_out: int = Field(description="taken out by a verdict")
    surely_fast_p: float = Field(description="`fast_p` with the lower bound of each interval")


OF_KIND: dict[str, Any] = {"solved": int, "interval": Ratio, "share": float}  # every other kind is a number, or null if nothing was measured


def _field(column: Column) -> tuple[Any, Any]:
    return OF_KIND.get(column.kind, float | None), Field(description=column.about or None)


if TYPE_CHECKING:

    class EntryRow(Counts):
        pass

else:
    EntryRow = create_model("EntryRow", __base__=Counts, __doc__=Counts.__doc__, **{column.exported: _field(column) for column in COLUMNS})


class Told(BaseModel):
    """A column of the board: the entry field that it shows, and the format."""

    field: str
    title: str
    kind: Kind


class ResultRow(BaseModel):
    """One finished run with its result."""

    run: str
    title: str
    task: str
    task_id: str
    task_sha: str = Field(description="SHA-256 of the task's source")
    team: str
    entry: str
    workflow: str
    planner: str
    coder: str
    judge: str
    language: str = Field(description="empty: the device's own")
    device_kind: str
    device_model: str
    device_name: str
    precision: str
    mode: str
    clock: int = Field(description="version of the verifier's clock: figures by different ones are not comparable")
    confirmed: bool = Field(description="passed the full verification on fresh seeds")
    counts: bool = Field(description="whether it is the median run that the ranking counts for its team")
    verdict: Literal["", "accepted", "questioned", "hack", "retracted"] | str
    visibility: Literal["private", "team", "everyone"] | str
    outcome: str
    reason: str
    candidate: int | None
    verification: str | None
    program_sha: str
    report_sha: str = Field(description="SHA-256 of the stored result that holds the report")
    program_class: str
    own_share: float | None = Field(description="share of the device's time in own kernels, 0 to 1")
    flags: list[str]
    speedup_vs_eager: float | None
    speedup_vs_eager_low: float | None
    speedup_vs_eager_high: float | None
    best_baseline: str
    speedup_vs_best: float | None
    speedup_vs_best_low: float | None
    speedup_vs_best_high: float | None
    baselines: dict[str, Measured]
    program_ms: float | None
    floor_fraction: float | None = Field(description="physical floor over the program's time, 0 to 1")
    peak_bytes: int | None
    dollars: float
    tokens: int
    calls: int
    seconds: float | None
    seconds_to_first_faster: float | None
    torch: str | None
    cuda: str | None
    driver: str | None
    compiler: str | None
    python: str | None
    threads: int | None
    report_version: int | None
    finished_at: str


class Selection(BaseModel):
    suite: str
    device_model: str
    device_name: str
    precision: str
    mode: str
    clock: int = Field(description="version of the verifier's clock: figures by different ones are not comparable")
    against: str
    p: float
    program_class: str
    tasks: list[str]
    flagged_tasks: list[str]


class BoardFile(BaseModel):
    version: int = VERSION
    selection: Selection
    interval: str = "95 %: tasks drawn with replacement, 1,000 draws, each value moved by its report's own interval"
    columns: list[Told] = Field(description="what a table of the entries shows, in its order")
    entries: list[EntryRow]


class ResultsFile(BaseModel):
    version: int = VERSION
    interval: str = "95 %: bootstrap over blocks of interleaved measurements"
    results: list[ResultRow]


def board_file(board: Board) -> BoardFile:
    filters, setup = board.filters, board.setup
    return BoardFile(
        selection=Selection(
            suite=board.suite.name if board.suite else "", device_model=setup.device_model if setup else "",
            device_name=setup.device_name if setup else "", precision=setup.precision if setup else "", mode=setup.mode if setup else "",
            clock=setup.clock if setup else CLOCK,
            against=filters.against or "eager", p=filters.p, program_class=filters.program_class or "custom+mixed",
            tasks=[task.name for task in board.tasks], flagged_tasks=[task.name for task in board.flagged],
        ),
        columns=[Told(field=column.exported, title=column.heading(filters.p, ""), kind=column.kind) for column in COLUMNS],
        entries=[_entry_row(row, len(board.tasks)) for row in board.rows],
    )  # fmt: skip


def _entry_row(row: BoardRow, tasks: int) -> EntryRow:
    counts = Counts(
        rank=row.rank, entry=row.name.short, entry_id=row.key, baseline=row.baseline, tasks=tasks, tried=row.tried, runs=row.runs,
        other_class=row.other_class, left_out=row.left_out, surely_fast_p=row.sure,
    )  # fmt: skip
    shown = {column.exported: Ratio.of(column.figure(row)) if column.kind == "interval" else column.figure(row) for column in COLUMNS}
    return EntryRow.model_validate(dict(counts) | shown)


def schema() -> dict[str, Any]:
    """Return the JSON schemas of both files."""
    return {"board": BoardFile.model_json_schema(mode="serialization"), "results": ResultsFile.model_json_schema(mode="serialization")}


def entries_csv(board: Board) -> str:
    rows = []
    for row in board_file(board).entries:
        plain = row.model_dump()
        for name in INTERVALS:
            interval = plain.pop(name)
            plain |= {name: interval["ratio"], f"{name}_low": interval["low"], f"{name}_high": interval["high"]}
        rows.append(plain)
    return table(rows, [*EntryRow.model_fields, *(f"{name}_{end}" for name in INTERVALS for end in ("low", "high"))])


def table(rows: Iterable[dict[str, Any]], columns: Sequence[str]) -> str:
    text = StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: harmless(value) for name, value in row.items()})
    return text.getvalue()


def harmless(value: Any) -> Any:
    """Quote text that a spreadsheet would interpret as a formula, because titles are untrusted."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
