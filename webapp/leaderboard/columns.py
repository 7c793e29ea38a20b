"""Defines each leaderboard column in one record, which the page, sorting, exports, API, command line, plots and documentation all use.

To add a column for a cost of a run, add its record to `COLUMNS`, create a migration with `manage.py makemigrations leaderboard` (the index covers
every column that a ranking reads), and run `python -m webapp.leaderboard.columns` to update the documentation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from agents.made import between

if TYPE_CHECKING:
    from webapp.leaderboard.ranking import BoardRow

Kind = Literal["solved", "interval", "share", "dollars", "count", "seconds"]  # format of a value


@dataclass(frozen=True)
class Column:
    """A leaderboard column. The placeholders `{p}`, `{against}` and `{other}` in a title are filled in from the selection."""

    key: str  # sort key in the URL
    title: str
    hint: str
    label: str  # shown next to the value when the screen is too narrow for the table and its rows are stacked
    kind: Kind
    exported: str  # field name in the exports; intervals add low and high
    means: str  # its explanation in docs/reference/leaderboard.md
    about: str = ""  # description of the field, if its name is not self-explanatory
    sorts: bool = True
    least_first: bool = False
    # For the cost of a run: the column of `Result` that holds it, and the function that aggregates it over the runs that count, ignoring NaN.
    source: str = ""
    over: Literal["mean", "median"] = "mean"
    axis: str = ""  # axis title in the cost plot; empty if the column is not plotted

    def figure(self, row: BoardRow, against: str = "") -> Any:
        """Return a number or an interval, or None if nothing was measured.

        `against` is the baseline of the selection: "best" or eager.
        """
        return row.costs[self.key] if self.source else FIGURES[self.key](row, against)

    def value(self, row: BoardRow, against: str) -> float | None:
        """Return the sort key of a row for this column."""
        found = self.figure(row, against)
        value: float | None = found.ratio if self.kind == "interval" else found
        return value

    def heading(self, p: float, against: str) -> str:
        words = ("the best baseline", "eager") if against == "best" else ("eager", "best baseline")
        return self.title.format(p=f"{p:g}", against=words[0], other=words[1])


COLUMNS = (
    Column(
        "passed", "Solved", "Tasks with a confirmed program of the selected classes, of all tasks of the selection", "solved", "solved",
        exported="solved", about="confirmed, and of a class that was selected",
        means="number of selected tasks with a confirmed program of the selected classes",
    ),
    Column(
        "geo", "Geometric mean, 95 %", "Over all tasks; a task without a solution counts as 1.0", "mean", "interval",
        exported="speedup_vs_eager", about="geometric mean over all tasks, 1.0 where there is no solution",
        means="geometric mean of the speedups (the baseline's time divided by the program's) over all selected tasks; an unsolved task counts as 1.0",
    ),
    Column(
        "other", "vs {other}", "Against the other of the two that programs are compared with", "vs {other}", "interval", sorts=False,
        exported="speedup_vs_best", about="against the fastest baseline of each task",
        means="the same mean against the other reference: PyTorch eager, or the fastest baseline measured for each task",
    ),
    Column(
        "fast", "fast_{p}", "Share of all tasks that are solved and more than p times as fast", "fast", "share",
        exported="fast_p", about="share of all tasks, 0 to 1, that are solved and more than p times as fast as `against`",
        means="share of all tasks that are solved and more than p times as fast; in brackets, the same share based on the lower bound of each "
        "task's interval. fast_0 is the share of tasks solved",
    ),
    Column(
        "dollars", "Cost per run", "What language models cost, mean of the runs that count", "cost", "dollars",
        exported="dollars_per_run", means="mean cost of language models over the runs that count",
        least_first=True, source="dollars", axis="cost of a run, dollars",
    ),
    Column(
        "tokens", "Tokens per run", "Mean of the runs that count", "tokens", "count",
        exported="tokens_per_run", means="mean number of language model tokens over the runs that count",
        least_first=True, source="tokens", axis="tokens of a run",
    ),
    Column(
        "seconds", "Time per run", "From start to end, mean of the runs that count", "time", "seconds",
        exported="seconds_per_run", means="mean time from start to end over the runs that count",
        least_first=True, source="seconds", axis="time of a run, seconds",
    ),
    Column(
        "first", "First faster", "Median time from a run's start to its first program that was faster than eager", "first faster", "seconds",
        exported="seconds_to_first_faster", about="median of the runs that had one",
        means="median time from the start of a run to its first program that was measured to be faster than eager (lower bound above 1), over "
        "the runs that had one",
        least_first=True, source="faster_after", over="median",
    ),
)  # fmt: skip
FIGURES: dict[str, Callable[[BoardRow, str], Any]] = {  # the columns that are not costs
    "passed": lambda row, against: row.passed,
    "geo": lambda row, against: row.against(against),
    "other": lambda row, against: row.against("" if against == "best" else "best"),
    "fast": lambda row, against: row.fast,
}
SORTED = {column.key: column for column in COLUMNS if column.sorts}
USUAL = "geo"  # a board's default sort key
COSTS = tuple(column for column in COLUMNS if column.source)
SOURCES = tuple(column.source for column in COSTS)


def shown(p: float, against: str, sort: str) -> list[dict[str, Any]]:
    """Return the headings of a board's table in the form that the template expects."""
    return [
        {
            "column": column,
            "heading": column.heading(p, against),
            "label": column.label.format(other="eager" if against == "best" else "best baseline"),
            "order": ("ascending" if column.least_first else "descending") if column.key == (sort or USUAL) else "",
        }
        for column in COLUMNS
    ]


# --- the document

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "leaderboard.md"
COMMAND = "python -m webapp.leaderboard.columns"


def page(text: str) -> str:
    """Return the text of the documentation page, updated with the current columns and sort keys."""
    rows = [f"| {column.title.format(p='p', against='eager', other='the other')} | {column.means} |" for column in COLUMNS]
    text = between(text, "columns", COMMAND, "\n".join(["| column | meaning |", "|---|---|", *rows]))
    return between(text, "sort keys", COMMAND, f"`sort`: {', '.join(f'`{key}`' for key in SORTED)}; `{USUAL}` if no key is given.")


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
