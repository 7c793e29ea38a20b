"""Lexers for untrusted text. They support only a few languages, and their running time is limited.

On hostile text, Pygments' patterns take quadratic time, or even more in some languages, but each single step is short. The clock is therefore checked
between steps, and text that takes too long is shown without colours.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name

LANGUAGES = {
    **dict.fromkeys(("python", "py", "python3", "triton"), "python"),
    **dict.fromkeys(("cuda", "cu", "cuh"), "cuda"),
    **dict.fromkeys(("cpp", "c++", "cc", "cxx", "hpp", "h"), "cpp"),
    **dict.fromkeys(("bash", "sh", "shell", "zsh"), "bash"),
    **dict.fromkeys(("diff", "patch", "udiff"), "diff"),
    **dict.fromkeys(("yaml", "yml"), "yaml"),
    **{name: name for name in ("c", "json", "pycon", "pytb", "rust", "sql", "toml", "cmake", "nasm")},
}
LONGEST = 8_000  # in characters; up to this length, no single step takes a tenth of a second
Item = TypeVar("Item")


class TakesTooLong(Exception):
    """Raised if highlighting takes too long. The text is then shown without colours."""


def lexer_of(language: str) -> Lexer | None:
    """Return the lexer for a language, or None if the language is not supported."""
    name = LANGUAGES.get(language.strip().lower())
    return get_lexer_by_name(name) if name else None


def within(items: Iterable[Item], deadline: float) -> Iterator[Item]:
    """Yield `items`, and raise `TakesTooLong` once `time.monotonic()` exceeds `deadline`."""
    for item in items:
        yield item
        if time.monotonic() > deadline:
            raise TakesTooLong
