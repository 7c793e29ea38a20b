"""Programs and tasks as modules of the test process."""

from __future__ import annotations

import linecache


def load(source: str, name: str) -> dict:
    linecache.cache[f"<{name}>"] = (len(source), None, source.splitlines(keepends=True), f"<{name}>")  # Triton reads the text of its kernels
    names = {"__name__": name}
    exec(compile(source, f"<{name}>", "exec"), names)
    return names
