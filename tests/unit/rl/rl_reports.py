"""Reports to be scored: a real one from an H200 (examples/traces/rms_norm), as version 2 of the clock would have written it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

ARTEFACTS = Path(__file__).parents[3] / "examples" / "traces" / "rms_norm" / "artefacts"
ROOT = "report"


@cache
def _full() -> str:
    for path in sorted(ARTEFACTS.iterdir()):
        try:
            report = json.loads(path.read_bytes()).get("report")
        except (ValueError, AttributeError):
            continue
        if report and report["tier"] == "full":
            report["timing"]["clock"] = 2
            return json.dumps(report)
    raise AssertionError("the example holds no full report")


def passed(**changed: Any) -> dict[str, Any]:
    return {**json.loads(_full()), **changed}


def failed(status: str, **changed: Any) -> dict[str, Any]:
    return passed(status=status, timing=None, faster=False, own_share=None, program_class=None, **changed)


@cache
def sources() -> tuple[str, str]:
    """Returns the report's task and program."""
    report = json.loads(_full())
    return (ARTEFACTS / report["task"]).read_text(), (ARTEFACTS / report["program"]).read_text()


def leaves(value: Any, path: tuple = ()) -> Iterator[tuple[tuple, Any]]:
    """Yields every location in a report with its value, but only the first item of long lists of samples."""
    items = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key), inner
        yield from leaves(inner, (*path, key))


def with_at(report: dict, path: tuple, put: Callable[[dict | list, Any], None]) -> dict:
    """Returns a copy of the report in which `put(parent, key)` has changed the value at this location."""
    made = copy.deepcopy(report)
    parent: Any = made
    for key in path[:-1]:
        parent = parent[key]
    put(parent, path[-1])
    return made


def set_to(value: Any) -> Callable[[Any, Any], None]:
    def put(parent: Any, key: Any) -> None:
        parent[key] = value

    return put


def remove(parent: Any, key: Any) -> None:
    del parent[key]
