"""Finds a commented line in another version of the program, first by its text, then by its neighbours, then by similarity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Literal

CONTEXT = 3  # number of lines stored before and after
TELLING = 4  # in characters; a shorter line, such as "}", is not distinctive
ALIKE = 0.7  # minimum similarity of a changed line
SURE = 0.55  # minimum fraction of matching neighbours if the line itself is not distinctive
MOST_LINES = 20_000  # maximum program length for the search by similarity


@dataclass(frozen=True)
class Placed:
    """The state is `here` (same text, same line number), `moved` (same text elsewhere), `changed` (an edited version of the line) or `outdated` (the
    line is gone)."""

    line: int | None  # 1-based
    state: Literal["here", "moved", "changed", "outdated"]


def context_of(lines: Sequence[str], line: int) -> dict[str, list[str]]:
    """Returns the lines before and after `line` (1-based). The nearest one is last in the first list and first in the second."""
    at = line - 1
    return {"before": list(lines[max(0, at - CONTEXT) : at]), "after": list(lines[at + 1 : at + 1 + CONTEXT])}


def place(anchor: Mapping[str, Any], lines: Sequence[str]) -> Placed:
    """Finds the anchor's line in `lines`."""
    text, at = anchor["text"], anchor["line"] - 1
    lines = [line[:400] for line in lines]
    same = [i for i, line in enumerate(lines) if line == text] or [i for i, line in enumerate(lines) if _plain(line) == _plain(text) and _plain(text)]
    if same:
        best = max(same, key=lambda i: (round(_agreement(anchor, lines, i), 3), -abs(i - at)))
        agreed = _agreement(anchor, lines, best)
        if best == at and lines[best] == text and (agreed >= SURE or len(_plain(text)) >= TELLING):
            return Placed(best + 1, "here")
        if len(_plain(text)) >= TELLING and (len(same) == 1 or agreed > 0) or agreed >= SURE:
            return Placed(best + 1, "moved")
    return _became(anchor, lines, at)


def _became(anchor: Mapping[str, Any], lines: Sequence[str], at: int) -> Placed:
    """Finds a line that is similar to the old one, or a somewhat similar line between the same neighbours."""
    text = anchor["text"]
    if len(_plain(text)) < TELLING or len(lines) > MOST_LINES:
        return Placed(None, "outdated")
    best, found = 0.0, -1
    matcher = SequenceMatcher(autojunk=False)
    matcher.set_seq2(text.strip())
    for i, line in enumerate(lines):
        matcher.set_seq1(line.strip())
        least = ALIKE - 0.25  # a line between the same neighbours needs less similarity
        if matcher.real_quick_ratio() < least or matcher.quick_ratio() < least:
            continue
        likeness, agreed = matcher.ratio(), _agreement(anchor, lines, i)
        if likeness < ALIKE - 0.25 * agreed:
            continue
        score = likeness + agreed - abs(i - at) / (10 * len(lines))
        if score > best:
            best, found = score, i
    return Placed(found + 1, "changed") if found >= 0 else Placed(None, "outdated")


def _agreement(anchor: Mapping[str, Any], lines: Sequence[str], at: int) -> float:
    """Returns the fraction (0 to 1) of the anchor's neighbours that also surround line `at`. Nearer neighbours weigh more."""
    before, after = anchor["context"]["before"], anchor["context"]["after"]
    agreed = whole = 0.0
    for offset, wanted in [*((-1 - i, line) for i, line in enumerate(reversed(before))), *((1 + i, line) for i, line in enumerate(after))]:
        weight = 1 / abs(offset)
        whole += weight
        there = at + offset
        if 0 <= there < len(lines) and _plain(lines[there]) == _plain(wanted):
            agreed += weight
    return agreed / whole if whole else 0.0


def _plain(line: str) -> str:
    return " ".join(line.split())
