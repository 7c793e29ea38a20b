"""C++ text helpers that several families use."""

from __future__ import annotations

from compiler.kernel.text import shift, times


def indented(lines: list[str]) -> list[str]:
    """Indents all lines except preprocessor lines by one level."""
    return [line if line.startswith("#") else f"    {line}" for line in lines]


def signed(number: int) -> str:
    """Formats a summand that is appended to an expression: " + 2", " - 2" or ""."""
    return f" + {shift(number)}" if number > 0 else f" - {-number}" if number else ""


def scaled(text: str, factor: int) -> str:
    return times(text, factor) if factor > 1 else text
