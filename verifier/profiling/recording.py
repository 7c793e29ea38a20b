"""Collects events in any order from any profiler and turns them into a `Timeline`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from verifier.profiling.timeline import COLUMNS, KINDS, Row, Timeline

MAX_EVENTS = 1_000_000  # 33 bytes each; the page draws this many smoothly
MAX_NAME = 2000  # characters; template names of CUDA kernels run to several thousand
MAX_ROWS = 65_000  # `row` is a u16
_KIND = {kind: index for index, kind in enumerate(KINDS)}
_ROW_ORDER = {"gpu": 0, "nvtx": 1, "api": 2, "thread": 3}


@dataclass(frozen=True)
class _Event:
    start: float
    duration: float
    name: int
    row: int
    kind: int
    correlation: int
    detail: int


class Recording:
    """`add` events, then `timeline`. Times are nanoseconds on one clock, whatever its origin."""

    def __init__(self, tool: str, device: str):
        self.tool = tool
        self.device = device
        self.warnings: list[str] = []
        self._rows: dict[tuple[str, str, str], int] = {}
        self._names: dict[str, int] = {}
        self._details: dict[str, int] = {}
        self._correlations: dict[tuple[Any, int], int] = {}
        self._events: list[_Event] = []

    def add(
        self,
        row: tuple[str, str, str],
        kind: str,
        name: str,
        start: float,
        duration: float,
        correlation: tuple[Any, int] | None = None,
        detail: dict[str, Any] | None = None,
    ) -> None:
        """`row` is (kind, name, group). `correlation` is (process, id): ids of two processes never meet."""
        if row not in self._rows and len(self._rows) >= MAX_ROWS:
            row = (row[0], "Other", row[2])
        self._events.append(
            _Event(
                start=float(start),
                duration=max(float(duration), 0.0),
                name=self._intern(self._names, name if len(name) <= MAX_NAME else name[: MAX_NAME - 1] + "…"),
                row=self._intern(self._rows, row),
                kind=_KIND[kind],
                correlation=self._intern(self._correlations, correlation) + 1 if correlation and correlation[1] > 0 else 0,
                detail=self._intern(self._details, json.dumps(detail, sort_keys=True)) + 1 if detail else 0,
            )
        )

    def timeline(self, limit: int = MAX_EVENTS) -> Timeline:
        """The events sorted by (row, start); where there are more than `limit`, the first in time."""
        events = self._events
        of = len(events)
        if of > limit:
            events = sorted(events, key=lambda e: e.start)[:limit]
        rows, order = self._sorted_rows({e.row for e in events})
        events = sorted(events, key=lambda e: (order[e.row], e.start, -e.duration))
        names: dict[int, int] = {}
        details: dict[int, int] = {}
        table = np.array(
            [
                (
                    e.start,
                    e.duration,
                    names.setdefault(e.name, len(names)),
                    order[e.row],
                    e.kind,
                    e.correlation,
                    details.setdefault(e.detail, len(details) + 1) if e.detail else 0,
                )
                for e in events
            ],
            dtype=np.float64,
        ).reshape(len(events), 7)
        columns = {
            name: np.ascontiguousarray(table[:, index].astype(dtype))
            for index, (name, dtype) in zip((0, 1, 2, 3, 4, 5, 6), [c for c in COLUMNS if c[0] != "depth"], strict=True)
        }
        columns["depth"] = nesting(columns["row"], columns["start"], columns["duration"])
        all_names, all_details = list(self._names), list(self._details)
        return Timeline(
            tool=self.tool,
            device=self.device,
            rows=rows,
            names=[all_names[i] for i in names],
            columns=columns,
            details=[json.loads(all_details[i - 1]) for i in details],
            warnings=list(dict.fromkeys(self.warnings)),
            truncated=(len(events), of) if of > len(events) else None,
        )

    def _sorted_rows(self, used: set[int]) -> tuple[list[Row], dict[int, int]]:
        keys = list(self._rows)
        wanted = sorted(used, key=lambda i: (_ROW_ORDER[keys[i][0]], keys[i][2], _natural(keys[i][1])))
        rows = [Row(name=keys[i][1], kind=keys[i][0], group=keys[i][2]) for i in wanted]  # type: ignore[arg-type]
        return rows, {row: position for position, row in enumerate(wanted)}

    @staticmethod
    def _intern(table: dict[Any, int], key: Any) -> int:
        return table.setdefault(key, len(table))


def nesting(row: np.ndarray, start: np.ndarray, duration: np.ndarray) -> np.ndarray:
    """Depth of each event within its row: how many earlier events of the row it lies inside or overlaps. Sorted by (row, start, -duration)."""
    depth = np.zeros(len(start), dtype="<u2")
    open_ends: list[float] = []  # by depth; -inf where that level is free
    current = -1
    for index, (in_row, begin, length) in enumerate(zip(row.tolist(), start.tolist(), duration.tolist(), strict=True)):
        if in_row != current:
            current, open_ends = in_row, []
        while open_ends and open_ends[-1] <= begin:
            open_ends.pop()
        level = next((i for i, end in enumerate(open_ends) if end <= begin), len(open_ends))
        if level == len(open_ends):
            open_ends.append(begin + length)
        else:
            open_ends[level] = begin + length
        depth[index] = min(level, 65535)
    return depth


def _natural(text: str) -> list[tuple[int, Any]]:
    """So that "Stream 7" comes before "Stream 13"."""
    return [(0, int(part)) if part.isdigit() else (1, part) for part in text.split(" ")]
