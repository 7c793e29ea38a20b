"""What changed between two programs: line alignment, word marks, folds. Computed here so that a page only shows it."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Collection
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import Path
from typing import Literal

MAX_BYTES = 256 * 1024  # a side
MAX_LINES = 3000
CONTEXT = 3  # unchanged lines kept around a change
SECONDS = 3.0
MAX_WORDS = 400  # a line; longer ones are marked whole
MAX_PAIRS = 900  # lines x lines of one changed block that are aligned by likeness

Range = tuple[int, int]  # characters [begin, end) of a line
Opcode = tuple[int, int, int, int]  # changed: old[a:b] became new[c:d], 0-based lines

_HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", re.MULTILINE)
_WORD = re.compile(r"\w+|\s+|[^\w\s]")


@dataclass(frozen=True)
class Row:
    """One line of a side-by-side table. `old` and `new` are 1-based line numbers; a side that has no line is None."""

    kind: Literal["equal", "changed", "deleted", "inserted"]
    old: int | None
    new: int | None
    old_marks: tuple[Range, ...] = ()
    new_marks: tuple[Range, ...] = ()


@dataclass(frozen=True)
class Block:
    """Consecutive rows; a folded one is unchanged and far from any change."""

    rows: tuple[Row, ...]
    folded: bool = False


@dataclass(frozen=True)
class Diff:
    blocks: tuple[Block, ...]
    inserted: int
    deleted: int
    refused: str = ""  # why there are no rows

    @property
    def same(self) -> bool:
        return not self.refused and not self.inserted and not self.deleted


@dataclass
class _Rows:
    rows: list[Row] = field(default_factory=list)

    def equal(self, old: int, new: int, count: int) -> None:
        self.rows += [Row("equal", old + i + 1, new + i + 1) for i in range(count)]


def compute(old: str, new: str, keep: Collection[int] = ()) -> Diff:
    """The difference of two texts. Lines of `new` in `keep` (1-based: they carry findings) are never folded."""
    before, after = lines_of(old), lines_of(new)
    for name, text, lines in (("earlier", old, before), ("later", new, after)):
        if len(text.encode()) > MAX_BYTES or len(lines) > MAX_LINES:
            return Diff((), 0, 0, f"the {name} program is larger than {MAX_LINES:,} lines or {MAX_BYTES // 1024} KiB: download both and compare them")
    table = _Rows()
    a = c = 0
    for begin, end, other, until in opcodes(before, after):
        table.equal(a, c, begin - a)
        table.rows += _changed(before, after, begin, end, other, until)
        a, c = end, until
    table.equal(a, c, len(before) - a)
    rows = table.rows
    inserted = sum(row.new is not None and row.kind != "equal" for row in rows)
    deleted = sum(row.old is not None and row.kind != "equal" for row in rows)
    return Diff(tuple(_fold(rows, set(keep))), inserted, deleted)


def lines_of(text: str) -> list[str]:
    """Lines as a compiler counts them: only a newline ends one."""
    lines = text.replace("\r\n", "\n").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def opcodes(old: list[str], new: list[str]) -> list[Opcode]:
    """Changed line ranges in order: git's histogram algorithm where git is, difflib where it is not."""
    if old == new:
        return []
    found = _git_opcodes(old, new) if shutil.which("git") else None
    if found is not None:
        return found
    matcher = SequenceMatcher(None, old, new, autojunk=len(old) + len(new) > 2000)
    return [(a, b, c, d) for tag, a, b, c, d in matcher.get_opcodes() if tag != "equal"]


def _git_opcodes(old: list[str], new: list[str]) -> list[Opcode] | None:
    with tempfile.TemporaryDirectory(prefix="stitchwork-diff-") as folder:
        names = []
        for name, lines in (("old", old), ("new", new)):
            path = Path(folder) / name
            path.write_text("".join(line + "\n" for line in lines), encoding="utf-8", errors="surrogatepass")
            names.append(str(path))
        command = ["git", "diff", "--no-index", "--histogram", "--no-color", "--no-ext-diff", "--text", "-U0", "--", *names]
        try:
            done = subprocess.run(command, capture_output=True, timeout=SECONDS, cwd=folder, check=False)
        except (subprocess.TimeoutExpired, OSError):
            return None
    if done.returncode != 1:  # 1: they differ
        return None
    result = []
    for match in _HUNK.finditer(done.stdout.decode("utf-8", "replace")):
        first, count, other, until = (int(group) if group is not None else 1 for group in match.groups())
        # With a count of 0 the number is that of the line before.
        begin = first if count == 0 else first - 1
        start = other if until == 0 else other - 1
        result.append((begin, begin + count, start, start + until))
    return result


def _changed(before: list[str], after: list[str], a: int, b: int, c: int, d: int) -> list[Row]:
    """Rows of one changed block: lines that are alike stand beside each other."""
    rows = []
    for i, j in _align(before[a:b], after[c:d]):
        if j is None:
            rows.append(Row("deleted", a + i + 1, None))
        elif i is None:
            rows.append(Row("inserted", None, c + j + 1))
        else:
            old_marks, new_marks = word_marks(before[a + i], after[c + j])
            rows.append(Row("changed", a + i + 1, c + j + 1, old_marks, new_marks))
    return rows


def _align(old: list[str], new: list[str]) -> list[tuple[int | None, int | None]]:
    """Pairs in order with the greatest sum of likeness; a line without a partner stands alone."""
    n, m = len(old), len(new)
    if not n or not m:
        return [(i, None) for i in range(n)] + [(None, j) for j in range(m)]
    if n * m > MAX_PAIRS:
        return [(i if i < n else None, j if j < m else None) for i, j in zip(range(max(n, m)), range(max(n, m)), strict=True)]
    likeness = [[_likeness(x, y) for y in new] for x in old]
    best = [[0.0] * (m + 1) for _ in range(n + 1)]
    for i in range(n - 1, -1, -1):
        for j in range(m - 1, -1, -1):
            pair = likeness[i][j] + best[i + 1][j + 1] if likeness[i][j] >= 0.3 else -1.0
            best[i][j] = max(pair, best[i + 1][j], best[i][j + 1])
    pairs: list[tuple[int | None, int | None]] = []
    i = j = 0
    while i < n and j < m:
        if likeness[i][j] >= 0.3 and best[i][j] == likeness[i][j] + best[i + 1][j + 1]:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        elif best[i][j] == best[i + 1][j]:
            pairs.append((i, None))
            i += 1
        else:
            pairs.append((None, j))
            j += 1
    return pairs + [(k, None) for k in range(i, n)] + [(None, k) for k in range(j, m)]


def _likeness(old: str, new: str) -> float:
    """Share of words that two lines have in common, 0 to 1."""
    first, second = ({word for word in _WORD.findall(line) if not word.isspace()} for line in (old[:2000], new[:2000]))
    return 2 * len(first & second) / (len(first) + len(second)) if first or second else 1.0


def word_marks(old: str, new: str) -> tuple[tuple[Range, ...], tuple[Range, ...]]:
    """Character ranges that differ. Lines that have little in common are not marked: everything would be."""
    before, after = _WORD.findall(old), _WORD.findall(new)
    if len(before) > MAX_WORDS or len(after) > MAX_WORDS:
        return (), ()
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    if matcher.ratio() < 0.3:
        return (), ()
    old_at, new_at = _offsets(before), _offsets(after)
    old_marks, new_marks = [], []
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag != "equal":
            if a < b:
                old_marks.append((old_at[a], old_at[b]))
            if c < d:
                new_marks.append((new_at[c], new_at[d]))
    if old.split() != new.split():  # beside a real change, moved indentation is noise
        old_marks = [mark for mark in old_marks if not old[slice(*mark)].isspace()]
        new_marks = [mark for mark in new_marks if not new[slice(*mark)].isspace()]
    return tuple(old_marks), tuple(new_marks)


def _offsets(words: list[str]) -> list[int]:
    at = [0]
    for word in words:
        at.append(at[-1] + len(word))
    return at


def _fold(rows: list[Row], keep: set[int]) -> list[Block]:
    """Unchanged rows further than `CONTEXT` lines from a change become folded blocks; a fold hides at least two lines."""
    near = [False] * len(rows)
    for index, row in enumerate(rows):
        if row.kind != "equal" or row.new in keep:
            for i in range(max(0, index - CONTEXT), min(len(rows), index + CONTEXT + 1)):
                near[i] = True
    blocks = []
    begin = 0
    for index in range(1, len(rows) + 1):
        if index == len(rows) or near[index] != near[begin]:
            blocks.append(Block(tuple(rows[begin:index]), folded=not near[begin] and index - begin > 1))
            begin = index
    return blocks
