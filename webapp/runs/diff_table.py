"""A diff as rows of a table: line numbers and safe HTML, with colours and word marks, for both layouts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

from webapp.diffs.highlight import Span, highlighted_lines
from webapp.runs.diff import Block, Diff, Range, Row


@dataclass(frozen=True)
class Cell:
    """One side of a line. `tone` is "", "del" or "ins"; an empty cell has no number."""

    number: int | None = None
    html: SafeString = SafeString("")
    tone: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Line:
    """A row of the table: both cells when side by side; inline, `left` holds the old number only."""

    left: Cell
    right: Cell
    tone: str = ""


@dataclass(frozen=True)
class Section:
    lines: list[Line]
    folded: bool
    hidden: int  # lines behind the fold


def line_html(spans: Sequence[Span], marks: Iterable[Range] = ()) -> SafeString:
    """Escaped text of one line; `marks` are character ranges that differ from the other side."""
    ranges = list(marks)
    parts: list[str] = []
    at = 0
    for name, text in spans:
        for piece, marked in _cut(text, at, ranges):
            body = escape(piece)
            if marked:
                body = f"<mark>{body}</mark>"
            parts.append(f'<span class="{name}">{body}</span>' if name else str(body))
        at += len(text)
    return mark_safe("".join(parts))  # noqa: S308 - every piece of text is escaped above, and class names are Pygments' own


def _cut(text: str, at: int, ranges: list[Range]) -> Iterable[tuple[str, bool]]:
    """Pieces of `text`, which begins at character `at` of its line, split where marks begin and end."""
    edges = sorted({0, len(text), *(min(max(edge - at, 0), len(text)) for pair in ranges for edge in pair)})
    for begin, end in zip(edges, edges[1:], strict=False):
        yield text[begin:end], any(low - at <= begin and end <= high - at for low, high in ranges)


def source_lines(source: str, notes: Mapping[int, Sequence[str]] | None = None) -> list[Cell]:
    notes = notes or {}
    lines = highlighted_lines(source)
    if lines and not lines[-1]:
        lines = lines[:-1]
    return [Cell(number, line_html(spans), "", tuple(notes.get(number, ()))) for number, spans in enumerate(lines, 1)]


def sections(diff: Diff, old: str, new: str, layout: str, notes: Mapping[int, Sequence[str]] | None = None) -> list[Section]:
    """`layout` is "split" or "inline"; `notes` are shown at lines of the new side."""
    before, after = highlighted_lines(old), highlighted_lines(new)
    notes = notes or {}
    draw = _split if layout == "split" else _inline
    result = []
    for block in diff.blocks:
        lines = list(draw(block, before, after, notes))
        result.append(Section(lines, block.folded, len(block.rows) if block.folded else 0))
    return result


def _old_cell(row: Row, before: list[list[Span]], tone: str = "") -> Cell:
    return Cell(row.old, line_html(before[row.old - 1], row.old_marks), tone) if row.old else Cell()


def _new_cell(row: Row, after: list[list[Span]], notes: Mapping[int, Sequence[str]], tone: str = "") -> Cell:
    return Cell(row.new, line_html(after[row.new - 1], row.new_marks), tone, tuple(notes.get(row.new, ()))) if row.new else Cell()


def _split(block: Block, before: list[list[Span]], after: list[list[Span]], notes: Mapping[int, Sequence[str]]) -> Iterable[Line]:
    for row in block.rows:
        changed = row.kind != "equal"
        yield Line(_old_cell(row, before, "del" if changed else ""), _new_cell(row, after, notes, "ins" if changed else ""))


def _inline(block: Block, before: list[list[Span]], after: list[list[Span]], notes: Mapping[int, Sequence[str]]) -> Iterable[Line]:
    """All that went before all that came, for each run of changed rows, as people read a patch."""
    pending: list[Row] = []
    for row in (*block.rows, None):
        if row is not None and row.kind != "equal":
            pending.append(row)
            continue
        for gone in pending:
            if gone.old:
                cell = _old_cell(gone, before, "del")
                yield Line(Cell(gone.old), Cell(None, cell.html, "del"), "del")
        for came in pending:
            if came.new:
                yield Line(Cell(), _new_cell(came, after, notes, "ins"), "ins")
        pending = []
        if row is not None:
            yield Line(Cell(row.old), _new_cell(row, after, notes), "")
