"""Collects events in any order from any profiler, and converts them to a `Timeline`."""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable
from typing import Any

import numpy as np

from verifier.profiling.timeline import COLUMNS, KINDS, Counter, Row, RowKey, Timeline

MAX_EVENTS = 1_000_000  # 33 bytes per event; the page can draw this many smoothly
MAX_NAME = 2000  # characters; template names of CUDA kernels can have several thousand
MAX_ROWS = 65_000  # `row` is a u16
MAX_SAMPLES = 100_000  # per counter; if there are more, neighbours are averaged
_KIND = {kind: index for index, kind in enumerate(KINDS)}
_CODES = (("start", "d"), ("duration", "d"), ("name", "I"), ("row", "I"), ("kind", "B"), ("correlation", "I"), ("detail", "I"))
_ROW_ORDER = {"gpu": 0, "nvtx": 1, "api": 2, "thread": 3}


class Recording:
    """Collects events through `add`; `timeline` returns the result. Times are nanoseconds on a single clock with an arbitrary origin."""

    def __init__(self, tool: str, device: str):
        self.tool = tool
        self.device = device
        self.warnings: list[str] = []
        self.end = 0.0  # end of the latest event so far
        self._rows: dict[RowKey, int] = {}
        self._names: dict[str, int] = {}
        self._details: dict[tuple[Any, ...], int] = {}
        self._correlations: dict[tuple[Any, int], int] = {}
        self._samples: dict[tuple[str, str, str], tuple[array[float], array[float]]] = {}
        self._columns: dict[str, array[Any]] = {name: array(code) for name, code in _CODES}
        self._append: list[Callable[[float], None]] = [column.append for column in self._columns.values()]

    def add(
        self,
        row: RowKey,
        kind: str,
        name: str,
        start: float,
        duration: float,
        correlation: tuple[Any, int] | None = None,
        detail: dict[str, Any] | None = None,
    ) -> None:
        """Adds an event. `correlation` is (process, id), so that ids from two processes never collide."""
        if row not in self._rows and len(self._rows) >= MAX_ROWS:
            row = (row[0], "Other", row[2])
        duration = max(float(duration), 0.0)
        self.end = max(self.end, start + duration)
        values = (
            start,
            duration,
            self._intern(self._names, name if len(name) <= MAX_NAME else name[: MAX_NAME - 1] + "…"),
            self._intern(self._rows, row),
            _KIND[kind],
            self._intern(self._correlations, correlation) + 1 if correlation and correlation[1] > 0 else 0,
            self._intern(self._details, _frozen(detail)) + 1 if detail else 0,
        )
        for append, value in zip(self._append, values, strict=True):
            append(value)

    def sample(self, counter: tuple[str, str, str], time: float, value: float) -> None:
        """Adds a sample of the counter (group, name, unit)."""
        times, values = self._samples.setdefault(counter, (array("d"), array("d")))
        times.append(time)
        values.append(value)

    def timeline(self, limit: int = MAX_EVENTS) -> Timeline:
        """Returns the events sorted by (row, start). If there are more than `limit`, keeps only the earliest."""
        held = {name: np.array(column) for name, column in self._columns.items()}
        of = len(held["start"])
        if of > limit:
            first = np.sort(np.argsort(held["start"], kind="stable")[:limit])
            held = {name: column[first] for name, column in held.items()}
        rows, places = self._sorted_rows(set(np.unique(held["row"]).tolist()))
        held["row"] = places[held["row"]]
        order = np.lexsort((-held["duration"], held["start"], held["row"]))
        held = {name: column[order] for name, column in held.items()}
        names, held["name"] = _renumbered(held["name"])
        details, renumbered = _renumbered(held["detail"][held["detail"] > 0])
        held["detail"][held["detail"] > 0] = renumbered + 1
        held["depth"] = nesting(held["row"], held["start"], held["duration"])
        all_names, all_details = list(self._names), list(self._details)
        return Timeline(
            tool=self.tool,
            device=self.device,
            rows=rows,
            names=[all_names[i] for i in names],
            columns={name: np.ascontiguousarray(held[name].astype(dtype)) for name, dtype in COLUMNS},
            details=[json.loads(json.dumps(dict(all_details[i - 1]))) for i in details],
            warnings=list(dict.fromkeys(self.warnings)),
            truncated=(len(order), of) if of > len(order) else None,
            counters=[_counter(*counter, *map(np.array, samples)) for counter, samples in self._samples.items()],
        )

    def _sorted_rows(self, used: set[int]) -> tuple[list[Row], np.ndarray]:
        """Returns the used rows in page order, and the new position of each row by its number."""
        keys = list(self._rows)
        wanted = sorted(used, key=lambda i: (_ROW_ORDER[keys[i][0]], keys[i][2], _natural(keys[i][1])))
        rows = [Row(name=keys[i][1], kind=keys[i][0], group=keys[i][2]) for i in wanted]
        places = np.zeros(len(keys), dtype=np.int64)
        places[wanted] = np.arange(len(wanted))
        return rows, places

    @staticmethod
    def _intern(table: dict[Any, int], key: Any) -> int:
        return table.setdefault(key, len(table))


def _counter(group: str, name: str, unit: str, times: np.ndarray, values: np.ndarray) -> Counter:
    order = np.argsort(times, kind="stable")
    times, values = times[order], values[order]
    block = -(-len(times) // MAX_SAMPLES)
    if block > 1:
        firsts = np.arange(0, len(times), block)
        times, values = times[firsts], np.add.reduceat(values, firsts) / np.diff(np.append(firsts, len(values)))
    return Counter(name, group, unit, times, values)


def _frozen(detail: dict[str, Any]) -> tuple[Any, ...]:
    return tuple((key, tuple(value) if isinstance(value, list) else value) for key, value in sorted(detail.items()))


def _renumbered(values: np.ndarray) -> tuple[list[int], np.ndarray]:
    """Returns the distinct values in order of first occurrence, and the position of each value among them."""
    distinct, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return distinct[order].tolist(), place[inverse]


def nesting(row: np.ndarray, start: np.ndarray, duration: np.ndarray) -> np.ndarray:
    """Returns each event's depth within its row, that is, the number of earlier events of the row that contain or overlap it. Events are sorted by
    (row, start, -duration)."""
    depth = np.zeros(len(start), dtype="<u2")
    end = start + duration
    for one in np.unique(row).tolist():
        low, high = np.searchsorted(row, (one, one + 1))
        # Events of streams and calls are mostly sequential, so only rows with an overlap are processed.
        if (np.maximum.accumulate(end[low:high])[:-1] > start[low + 1 : high]).any():
            depth[low:high] = _levels(start[low:high].tolist(), end[low:high].tolist())
    return depth


def _levels(starts: list[float], ends: list[float]) -> list[int]:
    levels = []
    open_ends: list[float] = []  # by depth
    for begin, end in zip(starts, ends, strict=True):
        while open_ends and open_ends[-1] <= begin:
            open_ends.pop()
        level = next((i for i, known in enumerate(open_ends) if known <= begin), len(open_ends))
        if level == len(open_ends):
            open_ends.append(end)
        else:
            open_ends[level] = end
        levels.append(min(level, 65535))
    return levels


def _natural(text: str) -> list[tuple[int, Any]]:
    """Returns a sort key that places "Stream 7" before "Stream 13"."""
    return [(0, int(part)) if part.isdigit() else (1, part) for part in text.split(" ")]
