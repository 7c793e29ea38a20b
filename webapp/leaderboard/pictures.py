"""The data for a board's plots, small enough to be sent with the page."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import numpy as np
from django.urls import reverse

from webapp.leaderboard.columns import COSTS
from webapp.leaderboard.filters import SOLVING
from webapp.leaderboard.ranking import Board, BoardRow

PLOTTED = [column for column in COSTS if column.axis]  # plotted one at a time against the speedup
MOST_CURVES = 10  # entries; more curves would be indistinguishable
MOST_ROWS, MOST_CELLS = 60, 12_000  # limits of the heat map


def curves(board: Board) -> dict[str, Any]:
    """Return the ratio of every solved task for the first entries in the page's order and for all baselines. From these, the page computes fast_p for
    any p."""
    entries = board.entries[:MOST_CURVES]
    shown = [row for row in board.rows if row.baseline or row in entries]
    return {
        "tasks": len(board.tasks),
        "p": board.filters.p,
        "against": "the best baseline" if board.filters.against == "best" else "eager",
        "left": len(board.entries) - len(entries),
        "entries": [_curve(board, row) for row in shown],
        "points": [_point(board, row) for row in board.entries],
        "costs": plotted(),
    }


def plotted() -> list[dict[str, str]]:
    """Return the costs that a plot offers."""
    return [{"key": column.key, "title": column.axis, "short": column.title, "kind": column.kind} for column in PLOTTED]


def _curve(board: Board, row: BoardRow) -> dict[str, Any]:
    return {
        "key": row.key, "name": row.name.short, "baseline": row.baseline, "rank": row.rank, "tried": row.tried, "solved": row.passed,
        "ratios": [float(f"{ratio:.6g}") for ratio in row.ratios],
    }  # fmt: skip


def _point(board: Board, row: BoardRow) -> dict[str, Any]:
    mean = row.against(board.filters.against)
    return {
        "name": row.name.short, "rank": row.rank, "costs": {column.key: row.costs[column.key] for column in PLOTTED},
        "ratio": round(mean.ratio, 4), "low": round(mean.low, 4), "high": round(mean.high, 4), "href": entry_address(board, row.key),
    }  # fmt: skip


def entry_address(board: Board, key: str) -> str:
    return f"{reverse('leaderboard:entry', args=[key])}?{board.filters.query}".rstrip("?")


def cells(board: Board) -> dict[str, Any]:
    """Return the heat map: a sign, the ratio and the corresponding result for each entry and task.

    Signs: "+" faster (lower bound above 1), "=" no significant difference, "-" slower, "x" tried without a result, "o" confirmed in a class that is
    not selected, "?" excluded by a verdict; null if the entry has not tried the task.
    """
    grid, filters = board.grid, board.filters
    rows = {int(row.key): row for row in board.entries}
    order = list(rows)[:MOST_ROWS]
    most = max(1, min(len(board.tasks), MOST_CELLS // max(1, len(order))))
    position = {entry: at for at, entry in enumerate(grid.entries)}
    every = _cells(board)
    found = []
    for entry in order:
        line = [every[at] if at >= 0 else None for at in grid.at[position[entry], :most].tolist()]
        for (of, column), judged in grid.left_out.items():
            if of == position[entry] and column < most and line[column] is None:
                line[column] = ["?", None, judged]
        found.append({"name": rows[entry].name.short, "href": entry_address(board, str(entry)), "cells": line})
    return {
        "tasks": [task.name for task in board.tasks[:most]],
        "entries": found,
        "left_tasks": len(board.tasks) - most,
        "left_entries": len(board.entries) - len(order),
        "result": reverse("leaderboard:result", args=[0]),
        "against": "the best baseline" if filters.against == "best" else "eager",
    }


def _cells(board: Board) -> list[list[Any]]:
    """Return one cell for each row that counts."""
    rows, against = board.grid.rows, board.filters.against or "eager"
    if rows is None:
        return []
    ratio, low, high = getattr(rows, against), getattr(rows, f"{against}_low"), getattr(rows, f"{against}_high")
    compared = np.where(low > 1, "+", np.where(high < 1, "-", "="))
    solved = rows.of_class(SOLVING[board.filters.program_class])
    signs = np.where(~rows.confirmed, "x", np.where(solved, compared, "o"))
    told: np.ndarray[Any, Any] = np.round(ratio, 3).astype(object)
    told[~rows.confirmed] = None
    return [list(cell) for cell in zip(signs.tolist(), told.tolist(), rows.result.tolist(), strict=True)]


def results_address(**given: Any) -> str:
    """Return the URL of the list of results with the same filters."""
    return f"{reverse('leaderboard:results')}?{urlencode({name: value for name, value in given.items() if value})}"
