"""Lexers for what strangers write: few languages, and no more time than a page can spare.

Pygments' patterns take time by the square of a text that is made for it, and some languages' by more; each single step is short. So the clock is
looked at between steps, and a text that takes too long stays without colours.
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
LONGEST = 8_000  # characters, of which no single step takes a tenth of a second
Item = TypeVar("Item")


class TakesTooLong(Exception):
    """The text is shown as it is."""


def lexer_of(language: str) -> Lexer | None:
    """Null for a language that is not among these."""
    name = LANGUAGES.get(language.strip().lower())
    return get_lexer_by_name(name) if name else None


def within(items: Iterable[Item], deadline: float) -> Iterator[Item]:
    """`items` until `time.monotonic()` is beyond `deadline`; then raises `TakesTooLong`."""
    for item in items:
        yield item
        if time.monotonic() > deadline:
            raise TakesTooLong
