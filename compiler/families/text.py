"""Pieces of C++ that several families print."""

from __future__ import annotations

from compiler.kernel.text import shift, times


def indented(lines: list[str]) -> list[str]:
    """A level deeper, but for the preprocessor's lines."""
    return [line if line.startswith("#") else f"    {line}" for line in lines]


def signed(number: int) -> str:
    """What is added to an expression: " + 2", " - 2", or nothing."""
    return f" + {shift(number)}" if number > 0 else f" - {-number}" if number else ""


def scaled(text: str, factor: int) -> str:
    return times(text, factor) if factor > 1 else text
