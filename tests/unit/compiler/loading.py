"""Programs and tasks as modules of the test process."""

from __future__ import annotations


def load(source: str, name: str) -> dict:
    names = {"__name__": name}
    exec(compile(source, f"<{name}>", "exec"), names)
    return names
