"""Colours for a program: Python, and the CUDA or C++ that stands in its triple-quoted strings."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pygments.lexers import CudaLexer, PythonLexer
from pygments.token import STANDARD_TYPES, String, Token

Span = tuple[str, str]  # (short CSS class of Pygments, text without newline)

MAX_BYTES = 256 * 1024
MAX_LINES = 3000
QUOTES = ('"""', "'''")
NATIVE = re.compile(r"#include|#pragma|__global__|__device__|extern\s+\"C\"|\bvoid\s+\w+\s*\(|\bint64_t\b|^\s*template\s*<", re.MULTILINE)


def highlighted_lines(source: str) -> list[list[Span]]:
    """One list of spans a line, in order; their texts joined give the source back. Very large sources come without colours."""
    source = source.replace("\r\n", "\n")
    plain = source.split("\n")
    if len(source.encode()) > MAX_BYTES or len(plain) > MAX_LINES:
        return [[("", line)] if line else [] for line in plain]
    lines: list[list[Span]] = [[]]
    for kind, text in _tokens(source):
        name = _class_of(kind)
        for index, part in enumerate(text.split("\n")):
            if index:
                lines.append([])
            if part:
                lines[-1].append((name, part))
    if [_text(line) for line in lines] != plain:  # a lexer that normalises text must never change what is shown
        return [[("", line)] if line else [] for line in plain]
    return lines


def _text(line: list[Span]) -> str:
    return "".join(text for _, text in line)


def _class_of(kind) -> str:
    while kind not in STANDARD_TYPES:
        kind = kind.parent
    return STANDARD_TYPES[kind]


def _tokens(source: str) -> Iterator[tuple[object, str]]:
    """Python's tokens, with the inside of a triple-quoted string that reads like C++ lexed as CUDA."""
    pending: list[tuple[object, str]] = []  # tokens of the string that is open
    quote = ""
    for _, kind, text in PythonLexer().get_tokens_unprocessed(source):
        if quote:
            if text == quote and kind in String:
                yield from _string_inside(pending)
                yield kind, text
                pending, quote = [], ""
            else:
                pending.append((kind, text))
        else:
            yield kind, text
            if text in QUOTES and kind in String and kind not in String.Doc:
                quote = text
    yield from pending


def _string_inside(tokens: list[tuple[object, str]]) -> Iterator[tuple[object, str]]:
    text = "".join(part for _, part in tokens)
    if not NATIVE.search(text):
        yield from tokens
        return
    for _, kind, part in CudaLexer().get_tokens_unprocessed(text):
        yield (kind if kind is not Token.Text else Token.Text), part
