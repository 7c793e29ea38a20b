"""Command-line inputs: tasks, programs, the data folder, and the device to use for verification."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from agents.arguments import Unusable

if TYPE_CHECKING:
    from verifier.client import Verifier


def open_verifier(device: str, data_dir: Path, timing_seconds: float | None = None) -> Verifier:
    """`timing_seconds`: how long the quick tier may time a program, instead of the verifier's own limit."""
    from verifier.client import Verifier  # loading torch takes seconds, which is too long for --help
    from verifier.limits import Limits

    data_dir.mkdir(parents=True, exist_ok=True)
    return Verifier(device, data_dir, limits=Limits(quick_timing=timing_seconds) if timing_seconds else None)


def find_tasks(given: Sequence[Path]) -> dict[Path, str]:
    """Collects task files with distinct names from files and folders."""
    files: list[Path] = []
    for path in given:
        if path.is_dir():
            files += sorted(p for p in path.glob("*.py") if not p.name.startswith("_"))
        elif path.is_file():
            files.append(path)
        else:
            raise Unusable(f"there is no task {path}")
    if not files:
        raise Unusable(f"no tasks in {', '.join(map(str, given))}")
    names: dict[Path, str] = {}
    for path in dict.fromkeys(files):
        name, number = path.stem, 2
        while name in names.values():
            name, number = f"{path.stem}-{number}", number + 1
        names[path] = name
    return names


def read_source(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise Unusable(f"{path} cannot be read as UTF-8 text: {error}") from None


def default_data_dir() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stitchwork"
