"""Moved blocks: lines that disappear from one place and appear in another, equal except for indentation (git's --color-moved=blocks)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from webapp.diffs.lines import Change

LEAST_LINES = 2  # non-blank lines
LEAST_INK = 20  # minimum number of letters and digits, as in git, so that a block of braces does not count as moved
COMMON = 40  # a line that occurs at least this often cannot start a block


@dataclass(frozen=True)
class Move:
    """`count` lines starting at old[old] have moved to new[new]; 0-based."""

    old: int
    new: int
    count: int


def moves(old: Sequence[str], new: Sequence[str], changed: Sequence[Change]) -> list[Move]:
    """Finds moved blocks, longest first. No line belongs to two of them."""
    gone = {i for a, b, _, _ in changed for i in range(a, b)}
    came = {j for _, _, c, d in changed for j in range(c, d)}
    where: dict[str, list[int]] = defaultdict(list)
    for j in sorted(came):
        if key := new[j].strip():
            where[key].append(j)
    beside = {j: (a, b) for a, b, c, d in changed for j in range(c, d)}
    found: list[Move] = []
    i, last = 0, max(gone, default=-1)
    while i <= last:
        starts = where.get(old[i].strip(), []) if i in gone else []
        best = Move(i, 0, 0)
        for j in starts if len(starts) <= COMMON else []:
            if j in came and not beside[j][0] <= i < beside[j][1]:  # within the same change, it is only re-indented
                count = _length(old, new, i, j, gone, came)
                if count > best.count:
                    best = Move(i, j, count)
        if best.count and _counts(old[i : i + best.count]):
            found.append(best)
            came -= set(range(best.new, best.new + best.count))
            gone -= set(range(i, i + best.count))
            i += best.count
        else:
            i += 1
    return found


def _length(old: Sequence[str], new: Sequence[str], i: int, j: int, gone: set[int], came: set[int]) -> int:
    """Returns the number of equal lines from here on, without trailing blank lines."""
    count = 0
    while i + count in gone and j + count in came and old[i + count].strip() == new[j + count].strip():
        count += 1
    while count and not old[i + count - 1].strip():
        count -= 1
    return count


def _counts(lines: Sequence[str]) -> bool:
    ink = sum(character.isalnum() for line in lines for character in line)
    return ink >= LEAST_INK and sum(bool(line.strip()) for line in lines) >= LEAST_LINES
