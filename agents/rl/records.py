"""The files that a training run leaves in its folder for people and pages: `run.json` (what is trained, how, and for which team), `metrics.jsonl`
(one line per step) and `rollouts.jsonl` (one line per reply). The Learning page (`webapp/learning`) reads only these three files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

VERSION = 1
RUN, METRICS, ROLLOUTS = "run.json", "metrics.jsonl", "rollouts.jsonl"
LONGEST_REASON = 500  # characters


@contextmanager
def sitting(folder: Path, about: Mapping[str, Any], step: int) -> Iterator[None]:
    """Maintains `run.json`, which contains `about` and a session that begins at `step` and ends with this block. If an error ended the session,
    records the reason too."""
    now: dict[str, Any] = {"began": _now(), "step": step, "ended": None, "why": ""}
    sittings = [*_earlier(folder / RUN), now]
    _write(folder / RUN, {"version": VERSION, **about, "sittings": sittings})
    try:
        yield
    except BaseException as error:
        now["why"] = "interrupted" if isinstance(error, KeyboardInterrupt) else (str(error) or type(error).__name__)[:LONGEST_REASON]
        raise
    finally:
        now["ended"] = _now()
        _write(folder / RUN, {"version": VERSION, **about, "sittings": sittings})


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Reads all lines, except for a last line that a crash left incomplete."""
    data = path.read_bytes() if path.exists() else b""
    return [json.loads(line) for line in data[: data.rfind(b"\n") + 1].splitlines()]


def append(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(line, allow_nan=False) + "\n" for line in lines)


def cut(path: Path, step: int) -> None:
    """Removes the lines of later steps and any incomplete line. Creates the file if it does not exist. The change is atomic."""
    draft = path.with_suffix(".part")
    draft.write_text("")
    append(draft, [line for line in read_lines(path) if line["step"] <= step])
    os.replace(draft, path)


def _earlier(path: Path) -> list[Any]:
    """Returns the earlier sessions, or an empty list if the file is missing or damaged."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))["sittings"]
        return found if isinstance(found, list) else []
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _write(path: Path, value: Mapping[str, Any]) -> None:
    draft = path.with_suffix(".part")
    draft.write_text(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    os.replace(draft, path)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
