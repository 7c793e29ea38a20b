"""Writes the page of a measured suite: the issue's figures with their targets, then one line per task, then the tasks that did not pass."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import geometric_mean, median
from typing import Any

from bench.sweep.rows import SOLVED
from bench.sweep.tables import DETAIL, chosen, detail, measured_on, name, number_of, table

FIGURES = ["figure", "bar", "reached"]
LOOPS = 8
CLOSE = 0.97  # a repeated measurement may fall below the best baseline by this factor

Row = dict[str, Any]


def page(content: dict[str, Any]) -> str:
    """Returns the page in Markdown. Means are geometric; a task that did not pass counts as 1.0."""
    rows = content["rows"]
    exact, narrow = chosen(rows, "everyday"), chosen(rows, "everyday-bf16")
    said = ["# The everyday suite", "", measured_on(content), "", table(FIGURES, [*figures(exact), *narrowed(narrow)]), ""]
    for title, part in (("fp32-strict", exact), ("bf16", narrow)):
        if part:
            ordered = sorted(part, key=lambda key: ratio_of(part[key]))
            said += [f"## {title}", "", table(DETAIL, [detail(key, part[key]) for key in ordered]), ""]
    lost = [f"- {name(key)}: {' '.join(row.get('why', row['status']).split())[:240]}" for key, row in rows.items() if row["status"] != "passed"]
    return "\n".join([*said, *(["Not passed:", "", *lost, ""] if lost else [])])


def figures(rows: dict[str, Row]) -> list[list[str]]:
    """Returns one line per figure of the issue. Figures that have not been measured are omitted."""
    every = list(rows.values())
    if not every:
        return []
    passed = [row for row in every if row["status"] == "passed"]
    admitted = sum(not row.get("why", "").startswith("the task was not admitted") for row in every)
    below = [key for key, row in rows.items() if row["status"] == "passed" and row["best"]["high"] < CLOSE]
    loops = [row for key, row in rows.items() if key.startswith("everyday/loops/")]
    seconds = [row["first_faster_s"] for row in every if row.get("first_faster_s") is not None]
    return [
        ["admitted; passed", "48; 47", f"{admitted}; {len(passed)} of {len(every)}"],
        [f"tasks whose interval ends below {CLOSE} of the best baseline", "0", f"{len(below)}{': ' + ', '.join(map(name, below)) if below else ''}"],
        ["the eight loops: mean over the best baseline", "2", f"{mean(loops)}{f' over {len(loops)} of them' if 0 < len(loops) < LOOPS else ''}"],
        ["mean over the best baseline", "1.35", mean(every)],
        ["class custom or mixed", "32", str(sum(row["class"] in SOLVED for row in passed))],
        ["median seconds to the first program faster than eager", "20", number_of(median(seconds) if seconds else None, 0)],
    ]


def narrowed(rows: dict[str, Row]) -> list[list[str]]:
    return [["bf16, serving: mean over the best baseline", "1.25", mean(list(rows.values()))]] if rows else []


def mean(rows: Sequence[Row]) -> str:
    return number_of(geometric_mean(map(ratio_of, rows)) if rows else None, 2)


def ratio_of(row: Row) -> float:
    return row["best"]["ratio"] if row["status"] == "passed" else 1.0
