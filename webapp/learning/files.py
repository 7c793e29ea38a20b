"""Reads the files of a training run as untrusted input. Every value is checked. An unusable value is reported with its location, cause and remedy.

The files are `run.json`, `metrics.jsonl` and `rollouts.jsonl`, written by `agents/rl/records.py`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

RUN, METRICS, ROLLOUTS = "run.json", "metrics.jsonl", "rollouts.jsonl"
MOST_BYTES = 64 << 20  # size limit of a file that is read into memory as a whole
HALF = re.compile(r"[\ud800-\udfff]")  # unpaired surrogates, which cannot be encoded when the page is sent


@dataclass(frozen=True)
class Problem(Exception):
    """A problem, in the form that `partials/error_box.html` expects."""

    place: str
    cause: str
    todo: str

    def __str__(self) -> str:
        return f"{self.place}: {self.cause}"


class Line(NamedTuple):
    number: int  # 1-based
    value: dict[str, Any] | Problem


def object_in(text: str | bytes, place: str, todo: str) -> dict[str, Any]:
    """Parses a JSON object, and refuses NaN and infinite numbers. Raises `Problem`."""
    try:
        found = json.loads(text, parse_constant=_no_number, parse_float=_number)
    except UnicodeDecodeError:
        raise Problem(place, "this isn't UTF-8 text.", todo) from None
    except (ValueError, RecursionError) as error:
        raise Problem(place, f"this isn't valid JSON ({str(error)[:120]}).", todo) from None
    if not isinstance(found, dict):
        raise Problem(place, "this isn't a JSON object.", todo)
    return found


def lines_of(path: Path, todo: str) -> Iterator[Line]:
    """Yields the lines of the file, each parsed into an object or a `Problem`. A last line without a newline is left out because it is still being
    written. Raises `Problem`."""
    for number, text in enumerate(whole_lines(path), start=1):
        try:
            yield Line(number, object_in(text, f"{path.name}, line {number}", todo))
        except Problem as problem:
            yield Line(number, problem)


def whole_lines(path: Path) -> list[bytes]:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise Problem(path.name, f"the file is larger than {MOST_BYTES >> 20} MiB.", "Train in a new folder, or shorten the file.")
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise unreadable(path.name, error) from None
    return data[: data.rfind(b"\n") + 1].splitlines()


def unreadable(place: str, error: OSError) -> Problem:
    return Problem(
        place, f"the web process can't read it ({error.strerror or type(error).__name__}).", "Let its account read the folder and its files."
    )


def figure(value: Any) -> float | None:
    """Returns a finite number unchanged, and None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return value if math.isfinite(value) else None
    except OverflowError:
        return None


def text(value: Any, most: int = 1 << 20) -> str:
    """Returns the value if it is a string that a page can contain, or "" otherwise."""
    return HALF.sub("\N{REPLACEMENT CHARACTER}", value[:most]) if isinstance(value, str) else ""


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _number(digits: str) -> float:
    found = float(digits)
    if not math.isfinite(found):
        raise ValueError(f"{digits[:20]} is too large")
    return found
