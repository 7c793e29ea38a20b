"""SQL in files of its own: `rescue.sql` beside `rescue.py`, a statement under each line `-- name: stalled`, with comments that say why."""

from __future__ import annotations

import re
from pathlib import Path

NAME = re.compile(r"^-- name: (\w+)\n(?:--.*\n)*", re.MULTILINE)  # with the comments below it, which are for readers of the file


def statements(user: str) -> dict[str, str]:
    """The statements beside a module, which passes its `__file__`, by name. Raises OSError where there is no such file, ValueError for one without
    names."""
    text = Path(user).with_suffix(".sql").read_text()
    _, *parts = NAME.split(text)
    if not parts:
        raise ValueError(f"{Path(user).with_suffix('.sql')} names no statement: begin each with a line `-- name: NAME`")
    return {name: statement.strip() for name, statement in zip(parts[::2], parts[1::2], strict=True)}
