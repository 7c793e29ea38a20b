"""Where the line that a comment was made on stands in another version of the program: by its text, then by its neighbours, then by likeness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Literal

CONTEXT = 3  # lines kept before and after
TELLING = 4  # characters: a shorter line ("}", "else:") says little by itself
ALIKE = 0.7  # least likeness of a line that was changed
SURE = 0.55  # least share of neighbours that agree, where the line itself says too little
MOST_LINES = 20_000  # of a program that is searched by likeness


@dataclass(frozen=True)
class Placed:
    """`here`: the same line at the same number; `moved`: the same text elsewhere; `changed`: a line that became of it; `outdated`: it is gone."""

    line: int | None  # 1-based
    state: Literal["here", "moved", "changed", "outdated"]


def context_of(lines: Sequence[str], line: int) -> dict[str, list[str]]:
    """The neighbours of 1-based `line`, nearest last before it and nearest first after it."""
    at = line - 1
    return {"before": list(lines[max(0, at - CONTEXT) : at]), "after": list(lines[at + 1 : at + 1 + CONTEXT])}


def place(anchor: Mapping[str, Any], lines: Sequence[str]) -> Placed:
    """Find the anchor's line in `lines`."""
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
    """A line that is like the old one, or stands between its neighbours and is not wholly unlike it."""
    text = anchor["text"]
    if len(_plain(text)) < TELLING or len(lines) > MOST_LINES:
        return Placed(None, "outdated")
    best, found = 0.0, -1
    matcher = SequenceMatcher(autojunk=False)
    matcher.set_seq2(text.strip())
    for i, line in enumerate(lines):
        matcher.set_seq1(line.strip())
        least = ALIKE - 0.25  # a line between the same neighbours may differ more
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
    """Share of the anchor's neighbours that stand beside line `at` as well, nearer ones counting more; 0 to 1."""
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
