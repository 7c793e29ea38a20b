"""Computes what changed between two programs, as rows with alignment, moved blocks, hunks and folds. Pages only display this result."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, NamedTuple

from webapp.diffs.lines import Change, changes, lines_of
from webapp.diffs.moves import Move, moves
from webapp.diffs.pairs import Pair, align, positional

MAX_BYTES = 2 * 1024 * 1024  # per side
MAX_LINES = 30_000
SECONDS = 0.15  # after this time, lines are paired in order, and the search for moved blocks is skipped
KEPT = 24  # number of cached diffs, for the parts that a page requests; a larger cache would slow down garbage collection
CONTEXT = 3  # unchanged lines kept around a change
LEAST_FOLD = 4  # lines; a fold itself takes up a row
MOVED_FOLD = 8  # moved blocks of at least this many lines are folded
HEADER_FOLD = 12  # lines added above the first kernel
HUNK_GAP = 3  # unchanged lines that separate two hunks

Kind = Literal["equal", "changed", "deleted", "inserted", "moved-out", "moved-in"]


class LinePair(NamedTuple):
    """An aligned pair of lines, one from each side. `old` and `new` are 1-based; 0 means that the side has no line."""

    kind: Kind
    old: int
    new: int
    hunk: int = 0  # 1-based; 0 outside of hunks
    other: int = 0  # for a moved line: its number on the other side


@dataclass(frozen=True, slots=True)
class Hunk:
    """A group of neighbouring changes, listed in `changes`. Ranges are 0-based and half-open."""

    number: int  # 1-based
    changes: tuple[Change, ...]
    partners: tuple[int, ...] = ()  # hunks that hold the other end of one of its moved blocks

    @property
    def old(self) -> tuple[int, int]:
        return self.changes[0][0], self.changes[-1][1]

    @property
    def new(self) -> tuple[int, int]:
        return self.changes[0][2], self.changes[-1][3]


@dataclass(frozen=True)
class Diff:
    rows: tuple[LinePair, ...] = ()
    hunks: tuple[Hunk, ...] = ()
    moves: tuple[Move, ...] = ()
    inserted: int = 0
    deleted: int = 0
    moved: int = 0
    refused: str = ""  # why there are no rows
    coarser: str = ""  # what was omitted because of the time or size limits
    seconds: float = 0.0

    @property
    def same(self) -> bool:
        return not self.refused and not self.hunks


@lru_cache(maxsize=KEPT)
def compute(old: str, new: str, ignore_space: bool = False) -> Diff:
    """Computes the difference between two texts. The most recent results are cached, keyed by both texts."""
    return _compute(old, new, ignore_space, SECONDS)


def _compute(old: str, new: str, ignore_space: bool, seconds: float) -> Diff:
    begin = time.monotonic()
    before, after = lines_of(old), lines_of(new)
    for name, text, lines in (("earlier", old, before), ("later", new, after)):
        if len(text) > MAX_BYTES or len(lines) > MAX_LINES:
            size = f"{MAX_LINES:,} lines or {MAX_BYTES // 2**20} MiB"
            return Diff(refused=f"The {name} program is larger than {size}: download both and compare them with a tool of your own.")
    changed = changes(before, after, ignore_space)
    coarser = ""
    if time.monotonic() - begin > seconds:
        moved: list[Move] = []
        coarser = f"Finding the changes took more than {seconds * 1000:.0f} ms: moved blocks are not marked, and lines are paired in order."
    else:
        moved = moves(before, after, changed)
    table = _Table(before, after, begin + seconds, coarser)
    table.fill(changed, moved)
    hunks = _hunks(changed, moved)
    rows = tuple(table.numbered(hunks))
    counts = {kind: sum(row.kind == kind for row in rows) for kind in ("changed", "deleted", "inserted", "moved-in")}
    return Diff(
        rows, hunks, tuple(moved), counts["inserted"] + counts["changed"], counts["deleted"] + counts["changed"], counts["moved-in"],
        coarser=table.coarser, seconds=time.monotonic() - begin,
    )  # fmt: skip


@dataclass
class _Table:
    before: Sequence[str]
    after: Sequence[str]
    deadline: float
    coarser: str
    rows: list[LinePair] = field(default_factory=list)

    def fill(self, changed: Sequence[Change], moved: Sequence[Move]) -> None:
        out = {move.old + k: move.new + k for move in moved for k in range(move.count)}
        come = {move.new + k: move.old + k for move in moved for k in range(move.count)}
        a = c = 0
        for begin, end, other, until in changed:
            self._equal(a, c, begin - a)
            self._changed(begin, end, other, until, out, come)
            a, c = end, until
        self._equal(a, c, len(self.before) - a)

    def _equal(self, old: int, new: int, count: int) -> None:
        self.rows += [LinePair("equal", old + i + 1, new + i + 1) for i in range(count)]

    def _changed(self, a: int, b: int, c: int, d: int, out: dict[int, int], come: dict[int, int]) -> None:
        """Adds the rows of one change. Moved lines stay unpaired, and the lines between them are paired block by block."""
        left = _parts(a, b, out)
        right = _parts(c, d, come)
        for index in range(max(len(left), len(right))):
            old_part, old_moved = left[index] if index < len(left) else (range(0), False)
            new_part, new_moved = right[index] if index < len(right) else (range(0), False)
            if old_moved:
                self.rows += [LinePair("moved-out", i + 1, 0, other=out[i] + 1) for i in old_part]
                old_part = range(0)
            if new_moved:
                self.rows += [LinePair("moved-in", 0, j + 1, other=come[j] + 1) for j in new_part]
                new_part = range(0)
            for i, j in self._pairs(old_part, new_part):
                if j is None:
                    self.rows.append(LinePair("deleted", old_part[i] + 1, 0))  # type: ignore[index]  # at most one of a pair is null
                elif i is None:
                    self.rows.append(LinePair("inserted", 0, new_part[j] + 1))
                else:
                    self.rows.append(LinePair("changed", old_part[i] + 1, new_part[j] + 1))

    def _pairs(self, old: range, new: range) -> list[Pair]:
        if not old or not new:
            return positional(len(old), len(new))
        found = None
        if time.monotonic() < self.deadline:
            found = align([self.before[i] for i in old], [self.after[j] for j in new])
        if found is None:
            self.coarser = self.coarser or "In very large changes, lines are paired by position rather than by similarity."
            found = positional(len(old), len(new))
        return found

    def numbered(self, hunks: Sequence[Hunk]) -> list[LinePair]:
        """Returns the rows with their hunk numbers."""
        olds, news = [hunk.old[0] for hunk in hunks], [hunk.new[0] for hunk in hunks]
        found, at = [], 0
        for row in self.rows:
            if row.kind != "equal":
                at = bisect_right(olds, row.old - 1) if row.old else bisect_right(news, row.new - 1)
                row = LinePair(row.kind, row.old, row.new, at, row.other)
            found.append(row)
        return found


def _parts(begin: int, end: int, moved: dict[int, int]) -> list[tuple[range, bool]]:
    """Splits a range where moved lines begin and end. Parts that have not moved are at even indices, so that the parts of both sides can be paired in
    order."""
    parts: list[tuple[range, bool]] = []
    at = begin
    while at < end:
        until = at
        inside = at in moved
        while until < end and (until in moved) == inside and not (inside and until > at and moved[until] != moved[until - 1] + 1):
            until += 1
        if inside != bool(len(parts) % 2):
            parts.append((range(0), not inside))
        parts.append((range(at, until), inside))
        at = until
    return parts


def _hunks(changed: Sequence[Change], moved: Sequence[Move]) -> tuple[Hunk, ...]:
    groups: list[list[Change]] = []
    for change in changed:
        if groups and change[0] - groups[-1][-1][1] < HUNK_GAP:
            groups[-1].append(change)
        else:
            groups.append([change])
    starts_old, starts_new = [group[0][0] for group in groups], [group[0][2] for group in groups]
    partners: dict[int, set[int]] = {}
    for move in moved:
        one, two = bisect_right(starts_old, move.old), bisect_right(starts_new, move.new)
        if one != two:
            partners.setdefault(one, set()).add(two)
            partners.setdefault(two, set()).add(one)
    return tuple(Hunk(n, tuple(group), tuple(sorted(partners.get(n, ())))) for n, group in enumerate(groups, 1))


@dataclass(frozen=True, slots=True)
class Fold:
    """Rows [begin, end) that are shown on demand: unchanged rows far from any change, a long moved block, or lines added above a kernel."""

    begin: int
    end: int
    moved: str = ""  # "", "moved-out" or "moved-in"
    header: bool = False


def folds(rows: Sequence[LinePair], keep: Collection[int] = (), header: int = 0) -> list[Fold]:
    """Returns the row ranges that a page folds. Lines of the newer side in `keep` (1-based, lines with findings) are never folded. The first `header`
    lines of the newer side precede its first kernel. They contain imports, includes and helpers, which are rarely the reason to open a diff."""
    kept = set(keep)
    near = [False] * len(rows)
    for index, row in enumerate(rows):
        if row.kind != "equal" or row.new in kept:
            for i in range(max(0, index - CONTEXT), min(len(rows), index + CONTEXT + 1)):
                near[i] = True
    found, begin = [], 0
    for index in range(1, len(rows) + 1):
        key = _key(rows, near, begin, header)
        moved = key.startswith("moved")
        if index == len(rows) or _key(rows, near, index, header) != key or (moved and rows[index].other != rows[index - 1].other + 1):
            least = MOVED_FOLD if moved else HEADER_FOLD if key == "header" else LEAST_FOLD
            if key and index - begin >= least and not any(rows[i].new in kept for i in range(begin, index)):
                found.append(Fold(begin, index, key if moved else "", key == "header"))
            begin = index
    return found


def _key(rows: Sequence[LinePair], near: Sequence[bool], index: int, header: int) -> str:
    if rows[index].kind in ("moved-out", "moved-in"):
        return rows[index].kind
    if not rows[index].old and rows[index].new <= header:
        return "header"
    return "" if near[index] else "far"
