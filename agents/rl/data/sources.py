"""Provides runs to learn from: trace folders whose owner has given consent, and database runs whose team has recorded its consent.

This module does not access a database: `manage.py export_agreed` writes the runs as traces, each with an `agreement.json`, which are then read like
any others.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from agents import sound
from agents.journal import TRACE, TraceDamaged
from agents.rl.data.rows import RunTrace

AGREEMENT = "agreement.json"
MANAGE = Path(__file__).resolve().parents[3] / "manage.py"


class NoSource(ValueError):
    """Raised if there is no usable source. The message says what to do."""


def folders(given: Sequence[Path], agreed_by: str = "") -> Iterator[tuple[str, RunTrace | str]]:
    """Yields the traces in folders, sorted by path. A string in place of a trace says why it cannot be used. Raises `NoSource`."""
    for folder in given:
        traces = sorted(folder.rglob(TRACE)) if folder.is_dir() else []
        if not traces:
            raise NoSource(f"{folder} holds no {TRACE}")
        for path in traces:
            known = path.parent / AGREEMENT
            if not known.exists() and not agreed_by.strip():
                raise NoSource("state with --agreed-by who agreed that models may be trained on these runs: it is recorded in every row")
            yield str(path.parent), _trace(path.parent, known if known.exists() else None, agreed_by)


def database() -> Iterator[tuple[str, RunTrace | str]]:
    """Yields finished runs of consenting teams from this installation's database (DATA_DIR, or DATABASE_URL). Raises `NoSource`."""
    if not MANAGE.exists():
        raise NoSource("the database is reached through manage.py, which is only in a checkout")
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.executable, str(MANAGE), "export_agreed", folder], capture_output=True, text=True)
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines() or ["no reason was given"]
            raise NoSource(f"the database gave no runs: {lines[-1][:500]}")
        if next(Path(folder).rglob(TRACE), None) is not None:
            yield from folders([Path(folder)])


def _trace(folder: Path, known: Path | None, agreed_by: str) -> RunTrace | str:
    try:
        events, stored = sound.read(folder)
        if known is None:
            return RunTrace(events, stored.__getitem__, f"stated by {agreed_by}", "trace")
        said = json.loads(known.read_text(encoding="utf-8"))
        verdicts = {int(number): str(verdict) for number, verdict in said["verdicts"].items()}
        return RunTrace(events, stored.__getitem__, str(said["by"]), "database", verdicts)
    except TraceDamaged as error:
        return str(error)
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        return f"its {AGREEMENT} cannot be read ({type(error).__name__})"
