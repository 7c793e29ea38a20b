"""Finds where a program's strings, kernels and functions begin and end, in one pass over the text, without running or even parsing it.

The source does not have to compile, because pages also show half-written candidates.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

PIECE_LINES = 60  # lines of Python that are highlighted at a time

_PYTHON = re.compile(
    r"""\#[^\n]*
    |[rRbBuUfF]{0,2}(?:\"\"\"(?:[^\\"]|\\.|"(?!""))*(?:\"\"\"|\Z)|'''(?:[^\\']|\\.|'(?!''))*(?:'''|\Z))
    |"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?""",
    re.VERBOSE | re.DOTALL,
)
STRONG = re.compile(r"^\s*#\s*(?:include|pragma)\b|__global__|__device__|extern\s+\"C\"", re.MULTILINE)
_WEAK = re.compile(r"\bvoid\s+\w+\s*\(|\b(?:u?int(?:8|16|32|64)_t)\b|^\s*template\s*<|\btorch::Tensor\b|\bfloat\s*\*", re.MULTILINE)
_DEFINITION = re.compile(r"(?P<indent>[ \t]*)(?:async[ \t]+)?(?P<what>def|class)[ \t]+(?P<name>\w+)")
_NATIVE = re.compile(
    r"//[^\n]*|/\*.*?(?:\*/|\Z)|\"(?:\\.|[^\"\\\n])*\"?|'(?:\\.|[^'\\\n])*'?|^[ \t]*\#(?:\\\n|[^\n])*|[{};]", re.DOTALL | re.MULTILINE
)
_CALLED = re.compile(r"(~?\w+)\s*\(")
_NO_FUNCTION = {
    "if",
    "for",
    "while",
    "switch",
    "catch",
    "return",
    "sizeof",
    "__launch_bounds__",
    "__attribute__",
    "__declspec",
    "alignas",
    "decltype",
}
_OPEN = re.compile(r"\b(?:namespace|extern)\b[^()]*$")
_RECORD = re.compile(r"\b(?:struct|class|union|enum)\s+(?:class\s+)?(\w+)[^()]*$")


@dataclass(frozen=True, slots=True)
class Piece:
    """Lines [begin, end) that can be highlighted independently, 0-based. `native` lists the character ranges of C++ or CUDA in it, each of which is
    all or part of the inside of a string."""

    begin: int
    end: int
    native: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Definition:
    """A function, class or kernel and its lines [begin, end), 0-based."""

    name: str  # qualified name in its own language: "ModelNew.forward"
    begin: int
    end: int
    kind: Literal["kernel", "function", "class"]

    @property
    def bare(self) -> str:
        return self.name.rpartition(".")[2]


@dataclass
class Anatomy:
    source: str
    starts: list[int]  # offset of each line
    pieces: list[Piece] = field(default_factory=list)
    native: list[tuple[int, int]] = field(default_factory=list)  # character ranges of the strings that hold C++ or CUDA
    definitions: list[Definition] = field(default_factory=list)  # in order of their first line

    def line_at(self, offset: int) -> int:
        return bisect_right(self.starts, offset) - 1

    def scope_at(self, line: int) -> str:
        """Returns the innermost function, class or kernel around a line (1-based), or an empty string."""
        inside = [one for one in self.definitions if one.begin < line <= one.end]
        return max(inside, key=lambda one: one.begin).name if inside else ""

    @property
    def first_kernel(self) -> Definition | None:
        """Returns where a reader should start: the first kernel or, if there is none, the first C++ function."""
        kernel = next((one for one in self.definitions if one.kind == "kernel"), None)
        spans = [(self.line_at(begin), self.line_at(max(begin, end - 1)) + 1) for begin, end in self.native]
        native = (one for one in self.definitions if one.kind == "function" and any(low <= one.begin < high for low, high in spans))
        return kernel or next(native, None)

    def definition_of(self, name: str) -> Definition | None:
        """Finds a definition by name. A kernel takes precedence over a function with the same name."""
        same = [one for one in self.definitions if one.bare == name]
        return next((one for one in same if one.kind == "kernel"), same[0] if same else None)


@lru_cache(maxsize=32)
def anatomy(source: str) -> Anatomy:
    source = source.replace("\r\n", "\n")
    starts = [0, *(match.end() for match in re.finditer("\n", source))]
    found = Anatomy(source, starts)
    strings = [match.span() for match in _PYTHON.finditer(source) if _is_long(match.group())]
    native = [span for span in strings if _is_native(source, *span)]
    covered = {line for begin, end in strings for line in range(found.line_at(begin) + 1, found.line_at(end - 1) + 1)}
    found.native = [_inside(source, *span) for span in native]
    found.definitions += _python_definitions(found, covered)
    for begin, end in found.native:
        found.definitions += _native_definitions(found, begin, end)
    found.definitions.sort(key=lambda one: (one.begin, -one.end))
    found.pieces = list(_pieces(found, covered, native))
    return found


def _is_long(text: str) -> bool:
    return text.lstrip("rRbBuUfF")[:3] in ('"""', "'''")


def _inside(source: str, begin: int, end: int) -> tuple[int, int]:
    """Returns the character range between a string's quotes."""
    first = begin + re.match(r"[rRbBuUfF]*", source[begin : begin + 3]).end() + 3  # type: ignore[union-attr]  # the pattern matches anything
    closed = end - first >= 3 and source[end - 3 : end] == source[first - 3 : first]
    return first, end - 3 if closed else end


def _is_native(source: str, begin: int, end: int) -> bool:
    """Returns whether a string holds C++ or CUDA. A string alone on its line is usually a docstring, so it needs stronger evidence."""
    text = source[slice(*_inside(source, begin, end))]
    if STRONG.search(text):
        return True
    alone = not source[source.rfind("\n", 0, begin) + 1 : begin].strip()
    return not alone and bool(_WEAK.search(text))


def _python_definitions(found: Anatomy, covered: set[int]) -> Iterator[Definition]:
    """Finds definitions by indentation. A decorator belongs to the definition below it, and `@triton.jit` marks a kernel."""
    lines = found.source.split("\n")
    open_: list[tuple[int, str, int, str]] = []  # indent, name, first line, kind
    decorated: int | None = None
    kernel = False
    last = 0  # the line after the last non-blank line
    for number, line in enumerate(lines):
        if number in covered:
            last = number + 1
            continue
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        indent = len(line) - len(line.lstrip())
        while open_ and indent <= open_[-1][0] and text[0] not in ")]}":
            _, name, begin, kind = open_.pop()
            yield Definition(name, begin, last, kind)  # type: ignore[arg-type]  # kinds come from literals
        last = number + 1
        if text.startswith("@"):
            decorated = number if decorated is None else decorated
            kernel = kernel or text.startswith(("@triton.jit", "@triton.autotune"))
            continue
        if match := _DEFINITION.match(line):
            name = ".".join([*(one[1].rpartition(".")[2] for one in open_), match["name"]])
            kind = "class" if match["what"] == "class" else "kernel" if kernel else "function"
            open_.append((indent, name, number if decorated is None else decorated, kind))
        if indent == 0 or match:
            decorated, kernel = None, False
    for _, name, begin, kind in reversed(open_):
        yield Definition(name, begin, last, kind)  # type: ignore[arg-type]  # as above


def _native_definitions(found: Anatomy, begin: int, end: int) -> Iterator[Definition]:
    """Finds functions that have a body, at the outermost level or within namespaces, `extern "C"` blocks and records."""
    stack: list[tuple[str, int, str]] = []  # name ("" for a block that may contain other definitions), first line, kind
    header = begin
    for match in _NATIVE.finditer(found.source, begin, end):
        token = match.group()
        if token == ";":
            header = match.end()
        elif token == "{":
            text = uncommented(found.source[header : match.start()])
            name, kind = _named(text) if all(one[2] != "kernel" and one[2] != "function" for one in stack) else ("", "block")
            first = header + len(found.source[header : match.start()]) - len(found.source[header : match.start()].lstrip())
            stack.append((name, found.line_at(first), kind))
            header = match.end()
        elif token == "}":
            header = match.end()
            if stack:
                name, first_line, kind = stack.pop()
                if name:
                    yield Definition(name, first_line, found.line_at(match.start()) + 1, kind)  # type: ignore[arg-type]  # as above
        elif token.lstrip().startswith(("#", "//", "/*")) and not found.source[header : match.start()].strip():
            header = match.end()


def uncommented(text: str) -> str:
    """Returns C++ or CUDA without comments and without lines that hold only comments, but with string literals unchanged."""
    kept = _NATIVE.sub(lambda match: " " if match.group().startswith(("//", "/*")) else match.group(), text)
    return "\n".join(line.rstrip() for line in kept.split("\n") if line.strip())


def _named(header: str) -> tuple[str, str]:
    """Returns the name and kind of the definition that a brace opens; the kind is "block" for anything else."""
    if _OPEN.search(header):
        return "", "open"
    if match := _RECORD.search(header):
        return match[1], "class"
    for match in _CALLED.finditer(header):
        if match[1] not in _NO_FUNCTION:
            return ("", "block") if "=" in header[: match.start()] else (match[1], "kernel" if "__global__" in header else "function")
    return "", "block"


def _pieces(found: Anatomy, covered: set[int], native: list[tuple[int, int]]) -> Iterator[Piece]:
    """Splits the text at places where no string or statement continues. C++ and CUDA are split between outermost definitions, so a page never waits
    for the whole text."""
    total = len(found.starts)
    lines = found.source.split("\n")
    begin = 0
    spans = iter([*native, None])
    span = next(spans)
    while begin < total:
        first = found.line_at(span[0]) if span else total
        if begin < first:
            end = min(begin + PIECE_LINES, first)
            while end < first and (end in covered or lines[end - 1].endswith("\\")):
                end += 1
            yield Piece(begin, end)
            begin = end
            continue
        inside = []
        end = begin
        while span and found.line_at(span[0]) <= max(end - 1, begin):  # strings that share a line
            inside.append(_inside(found.source, *span))
            end = max(end, found.line_at(span[1] - 1) + 1)
            span = next(spans)
        yield from _native_pieces(found, begin, end, inside)
        begin = end


def _native_pieces(found: Anatomy, begin: int, end: int, inside: list[tuple[int, int]]) -> Iterator[Piece]:
    if len(inside) > 1 or end - begin <= PIECE_LINES:
        yield Piece(begin, end, tuple(inside))
        return
    first, last = inside[0]
    outer = [one for one in found.definitions if one.begin >= begin and one.end <= end and one.kind != "class"]
    cut = begin
    for one, after in zip(outer, outer[1:], strict=False):
        # No statement, comment or macro continues after a blank line that follows a definition.
        if one.end - cut >= PIECE_LINES // 2 and one.end < end and not found.source[found.starts[one.end] : found.starts[one.end + 1]].strip():
            if after.begin < one.end:
                continue
            yield Piece(cut, one.end, ((max(first, found.starts[cut]), found.starts[one.end]),))
            cut = one.end
    yield Piece(cut, end, ((max(first, found.starts[cut]), last),))
