"""The hash function that identifies sources, libraries and artefacts."""

from __future__ import annotations

import hashlib


def sha256(source: str | bytes) -> str:
    """Returns the hex digest that identifies tasks, programs and artefacts everywhere."""
    return hashlib.sha256(source.encode() if isinstance(source, str) else source).hexdigest()
