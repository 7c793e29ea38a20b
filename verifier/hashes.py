"""The digest by which sources, libraries and artefacts are known."""

from __future__ import annotations

import hashlib


def sha256(source: str | bytes) -> str:
    """Hex digest by which tasks, programs and artefacts are known everywhere."""
    return hashlib.sha256(source.encode() if isinstance(source, str) else source).hexdigest()
