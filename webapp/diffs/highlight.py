"""Syntax highlighting for a program: Python with Triton's names, and the CUDA or C++ in its strings. Lines are highlighted on demand."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Any

from pygments.lexers import CudaLexer, PythonLexer
from pygments.token import STANDARD_TYPES, Name, String, Token

from webapp.diffs.anatomy import Anatomy, Piece, anatomy
from webapp.ui.colours import TakesTooLong, within

Span = tuple[str, str]  # (Pygments' short CSS class, text without newline)
Tokens = Iterator[tuple[object, str]]

MAX_BYTES = 2 * 1024 * 1024
SECONDS = 2.0  # time limit for highlighting one piece
KEPT = 32  # number of highlighted sources that are cached
TRITON = {"tl", "triton", "libdevice"}


class Colours:
    """The highlighted lines of one source. Highlighted pieces are cached."""

    def __init__(self, source: str):
        self.anatomy: Anatomy = anatomy(source)
        self.plain = self.anatomy.source.split("\n")
        self.coloured: dict[int, list[list[Span]]] = {}
        self.triton = "triton" in self.anatomy.source
        self._piece_of: list[int] = [0] * len(self.plain)
        for index, piece in enumerate(self.anatomy.pieces):
            self._piece_of[piece.begin : piece.end] = [index] * (piece.end - piece.begin)

    def line(self, number: int) -> list[Span]:
        """Returns the spans of a line (1-based), whose concatenated texts equal the line."""
        if len(self.anatomy.source) > MAX_BYTES:
            return _uncoloured(self.plain[number - 1])
        index = self._piece_of[number - 1]
        if index not in self.coloured:
            self.coloured[index] = self._colour(self.anatomy.pieces[index])
        return self.coloured[index][number - 1 - self.anatomy.pieces[index].begin]

    def _colour(self, piece: Piece) -> list[list[Span]]:
        lines: list[list[Span]] = [[]]
        try:
            tokens = list(within(self._tokens(piece), time.monotonic() + SECONDS))
        except TakesTooLong:
            return [_uncoloured(line) for line in self.plain[piece.begin : piece.end]]
        for kind, text in tokens:
            name = _class_of(kind)
            for at, part in enumerate(text.split("\n")):
                if at:
                    lines.append([])
                if part and lines[-1] and lines[-1][-1][0] == name:
                    lines[-1][-1] = (name, lines[-1][-1][1] + part)
                elif part:
                    lines[-1].append((name, part))
        lines = lines[: piece.end - piece.begin]
        plain = self.plain[piece.begin : piece.end]
        if ["".join(text for _, text in line) for line in lines] != plain:  # a lexer's normalisation must never change the displayed text
            return [_uncoloured(line) for line in plain]
        return lines

    def _tokens(self, piece: Piece) -> Tokens:
        source, starts = self.anatomy.source, self.anatomy.starts
        at = starts[piece.begin]
        end = starts[piece.end] if piece.end < len(starts) else len(source)
        for begin, until in piece.native:
            yield from self._before_string(source[at:begin])
            yield from _native(source[begin:until])
            closing = source[until : until + 3] if source[until : until + 3] in ('"""', "'''") and until + 3 <= end else ""
            if closing:
                yield String, closing
            at = until + len(closing)
        yield from self._python(source[at:end])

    def _before_string(self, text: str) -> Tokens:
        """Highlights Python up to the start of a string. The last characters are the string's prefix and opening quotes."""
        quotes = text[-3:]
        if quotes not in ('"""', "'''"):
            yield from self._python(text)
            return
        code = text[:-3].rstrip("rRbBuUfF")
        if code and (code[-1].isalnum() or code[-1] == "_"):  # a name that ends in such a letter is not a string prefix, so it cannot precede quotes
            code = text[:-3]
        yield from self._python(code)
        if affix := text[len(code) : -3]:
            yield String.Affix, affix
        yield String, quotes

    def _python(self, text: str) -> Tokens:
        """Highlights Python, giving `tl` and its attributes, which are Triton's names, a class of their own."""
        before = ""
        for _, kind, part in PythonLexer().get_tokens_unprocessed(text):
            if self.triton and kind in Name and kind not in Name.Decorator:
                if part in TRITON and before != ".":
                    kind = Name.Namespace
                elif before == "tl.":
                    kind = Name.Builtin
            yield kind, part
            if part.strip():
                before = f"{before}{part}"[-3:] if part == "." and before in TRITON else part


def _native(text: str) -> Tokens:
    for _, kind, part in CudaLexer().get_tokens_unprocessed(text):
        yield kind, part


def highlighted_lines(source: str) -> list[list[Span]]:
    """Returns one list of spans per line, in order. Their concatenated texts equal the source."""
    colours = colours_of(source)
    return [colours.line(number) for number in range(1, len(colours.plain) + 1)]


@lru_cache(maxsize=KEPT)
def colours_of(source: str) -> Colours:
    return Colours(source)


def _uncoloured(line: str) -> list[Span]:
    return [("", line)] if line else []


@cache
def _class_of(kind: Any) -> str:
    while kind not in STANDARD_TYPES:
        kind = kind.parent
    return "" if kind in (Token, Token.Text, Token.Text.Whitespace, Name) else STANDARD_TYPES[kind]
