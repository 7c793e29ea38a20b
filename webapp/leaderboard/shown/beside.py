"""Compares suites. Each entry's figures on several suites show whether good results on one carry over to another."""

from __future__ import annotations

from dataclasses import dataclass, replace

from webapp.accounts.access import Asker
from webapp.leaderboard.entries import Name
from webapp.leaderboard.filters import Filters
from webapp.leaderboard.ranking import Board, BoardRow, board
from webapp.leaderboard.suites import choices

MOST = 6  # suites; each needs its own ranking
SEPARATOR = ","


@dataclass(frozen=True)
class Beside:
    boards: list[Board]  # one per suite, all under the same setup
    lines: list[tuple[str, Name, bool, list[BoardRow | None]]]  # the entry's key and name, whether it is a baseline, and its row in each suite


def beside(asker: Asker, filters: Filters, asked: str) -> Beside:
    """Return the suites requested by key, or the first available ones if none is requested. Keys of suites that the requester may not see are
    ignored."""
    there = {choice.key: choice for choice in choices(asker)}
    keys = [key for key in dict.fromkeys(asked.split(SEPARATOR)) if key in there] or list(there)
    boards = [board(asker, replace(filters, suite=key)) for key in keys[:MOST]]
    boards = [found for found in boards if found.setup is not None]
    rows: dict[str, list[BoardRow | None]] = {}
    for at, found in enumerate(boards):
        for row in found.rows:
            rows.setdefault(row.key, [None] * len(boards))[at] = row
    lines = [(key, next(row for row in of if row).name, next(row for row in of if row).baseline, of) for key, of in rows.items()]
    return Beside(boards, sorted(lines, key=lambda line: _order(line[3], filters.against)))


def _order(rows: list[BoardRow | None], against: str) -> tuple[int, float]:
    """Sort key: entries in the most suites come first, then those with the largest product of ratios."""
    product = 1.0
    for row in rows:
        product *= row.against(against).ratio if row else 1.0
    return (-sum(row is not None for row in rows), -product)
