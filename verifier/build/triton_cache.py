"""Hands over the cubins that Triton compiled in a runner, as evidence for the resource figures in the report."""

# sandboxed: reads files that a program may have written

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

MAX_FILES = 64
MAX_BYTES = 8 << 20  # per cubin


def cubins() -> dict[str, Any]:
    """Returns the names and sizes of the cubins, and their concatenated bytes."""
    folder = Path(os.environ.get("TRITON_CACHE_DIR") or os.path.join(os.path.expanduser("~"), ".triton", "cache"))
    found: list[tuple[str, bytes]] = []
    for path in sorted(folder.glob("*/*.cubin"))[:MAX_FILES]:
        if path.is_file() and not path.is_symlink() and path.stat().st_size <= MAX_BYTES:
            found.append((path.stem, path.read_bytes()))
    return {"type": "cubins", "index": [(name, len(data)) for name, data in found], "raw": b"".join(data for _, data in found)}
