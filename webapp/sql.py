"""Reads SQL from separate files, such as `rescue.sql` next to `rescue.py`. Each statement follows a line such as `-- name: stalled` and comments that
explain it."""

from __future__ import annotations

import re
from pathlib import Path

NAME = re.compile(r"^-- name: (\w+)\n(?:--.*\n)*", re.MULTILINE)  # also matches the comments below the name, which are only for readers of the file


def statements(user: str) -> dict[str, str]:
    """Returns a module's statements, keyed by name. The module passes its `__file__`. Raises OSError if there is no such file, and ValueError if it
    has no names."""
    text = Path(user).with_suffix(".sql").read_text()
    _, *parts = NAME.split(text)
    if not parts:
        raise ValueError(f"{Path(user).with_suffix('.sql')} names no statement: begin each with a line `-- name: NAME`")
    return {name: statement.strip() for name, statement in zip(parts[::2], parts[1::2], strict=True)}
