"""Suites beside each other: each entry's figures over several suites, so that one sees whether what is good at one is good at another."""

from __future__ import annotations

from dataclasses import dataclass, replace

from webapp.accounts.access import Asker
from webapp.leaderboard.entries import Name
from webapp.leaderboard.filters import Filters
from webapp.leaderboard.ranking import Board, Row, board
from webapp.leaderboard.suites import choices

MOST = 6  # suites; each is a ranking of its own
SEPARATOR = ","


@dataclass(frozen=True)
class Beside:
    boards: list[Board]  # one a suite, under one setup
    lines: list[tuple[str, Name, bool, list[Row | None]]]  # key and name of the entry, whether it is a baseline, its row in each suite


def beside(asker: Asker, filters: Filters, asked: str) -> Beside:
    """The suites that were asked for by their keys, else the first ones there are. Keys of suites that the asker may not see are left out."""
    there = {choice.key: choice for choice in choices(asker)}
    keys = [key for key in dict.fromkeys(asked.split(SEPARATOR)) if key in there] or list(there)
    boards = [board(asker, replace(filters, suite=key)) for key in keys[:MOST]]
    boards = [found for found in boards if found.setup is not None]
    rows: dict[str, list[Row | None]] = {}
    for at, found in enumerate(boards):
        for row in found.rows:
            rows.setdefault(row.key, [None] * len(boards))[at] = row
    lines = [(key, next(row for row in of if row).name, next(row for row in of if row).baseline, of) for key, of in rows.items()]
    return Beside(boards, sorted(lines, key=lambda line: _order(line[3], filters.against)))


def _order(rows: list[Row | None], against: str) -> tuple[int, float]:
    """What is in the most suites first, then by the product of its ratios."""
    product = 1.0
    for row in rows:
        product *= row.against(against).ratio if row else 1.0
    return (-sum(row is not None for row in rows), -product)
