"""Writes a timeline in Chrome's trace format (JSON), which Perfetto and chrome://tracing read.

The output is written in pieces, because a million events take 200 MB. The format is described at
https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU; times are in microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from verifier.profiling.timeline import KINDS, Timeline

EVENTS_A_PIECE = 4096
_CATEGORY = {"memcpy": "gpu_memcpy", "memset": "gpu_memset", "api": "cuda_runtime", "sync": "cuda_sync", "operator": "cpu_op", "own": "own_code"}
_ON_DEVICE = [KINDS.index(kind) for kind in ("kernel", "memcpy", "memset", "graph")]


def chrome_trace(timeline: Timeline, title: str = "") -> Iterator[bytes]:
    """Yields pieces of one JSON document: a process for each group of rows, a thread for each row (one per depth if events of a row overlap without
    nesting), and a flow from each launch to the work that it launched."""
    about = {"title": title, "tool": timeline.tool, "device": timeline.device, "warnings": timeline.warnings}
    yield b'{"displayTimeUnit":"ns","otherData":' + _json(about) + b',"traceEvents":[\n'
    places, naming = _places(timeline)
    yield b",\n".join(_json(event) for event in naming)
    columns = timeline.columns
    begins = columns["start"] / 1e3
    lengths = columns["duration"] / 1e3
    names = [_json(name) for name in timeline.names]
    details = [_json(detail)[1:-1] for detail in timeline.details]
    for first in range(0, timeline.events, EVENTS_A_PIECE):
        piece = slice(first, first + EVENTS_A_PIECE)
        lines = []
        for begin, length, name, row, kind, correlation, depth, detail in zip(
            begins[piece].tolist(), lengths[piece].tolist(), *(columns[key][piece].tolist() for key in _REST), strict=True
        ):
            process, thread = places[(row, depth)] if (row, depth) in places else places[(row, 0)]
            arguments = b",".join(
                part for part in (b'"correlation":%d' % correlation if correlation else b"", details[detail - 1] if detail else b"") if part
            )
            lines.append(
                b'{"ph":"X","name":%s,"cat":"%s","ts":%.3f,"dur":%.3f,"pid":%d,"tid":%d,"args":{%s}}'
                % (names[name], _CATEGORY.get(KINDS[kind], KINDS[kind]).encode(), begin, length, process, thread, arguments)
            )
        yield b",\n" + b",\n".join(lines)
    yield from _flows(timeline, places)
    yield from _counters(timeline, places)
    yield b"\n]}\n"


_REST = ("name", "row", "kind", "correlation", "depth", "detail")


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _places(timeline: Timeline) -> tuple[dict[tuple[int, int], tuple[int, int]], list[dict[str, Any]]]:
    """Returns (process, thread) for each row and depth, and the metadata events that name them, in row order."""
    places: dict[tuple[int, int], tuple[int, int]] = {}
    naming: list[dict[str, Any]] = []
    processes: dict[str, int] = {}
    thread = 0
    split = _overlapping(timeline)
    depths = np.zeros(len(timeline.rows), dtype=np.int64)
    np.maximum.at(depths, timeline.columns["row"].astype(np.int64), timeline.columns["depth"].astype(np.int64))
    for index, row in enumerate(timeline.rows):
        group = row.group or row.kind
        if group not in processes:
            processes[group] = len(processes) + 1
            naming.append({"ph": "M", "name": "process_name", "pid": processes[group], "args": {"name": group}})
            naming.append({"ph": "M", "name": "process_sort_index", "pid": processes[group], "args": {"sort_index": processes[group]}})
        for depth in range(int(depths[index]) + 1 if index in split else 1):
            thread += 1
            places[(index, depth)] = (processes[group], thread)
            name = row.name if depth == 0 else f"{row.name} ({depth + 1})"
            naming.append({"ph": "M", "name": "thread_name", "pid": processes[group], "tid": thread, "args": {"name": name}})
            naming.append({"ph": "M", "name": "thread_sort_index", "pid": processes[group], "tid": thread, "args": {"sort_index": thread}})
    return places, naming


def _overlapping(timeline: Timeline) -> set[int]:
    """Finds rows in which an event outlasts the event in which it began. On a single thread, viewers would drop or misplace it."""
    columns = timeline.columns
    found: set[int] = set()
    for row in np.unique(columns["row"][columns["depth"] > 0]).tolist():
        mine = np.flatnonzero(columns["row"] == row)
        order = mine[np.lexsort((-columns["duration"][mine], columns["start"][mine]))]
        ends: list[float] = []
        for begin, end in zip(columns["start"][order].tolist(), (columns["start"] + columns["duration"])[order].tolist(), strict=True):
            while ends and ends[-1] <= begin:
                ends.pop()
            if ends and end > ends[-1]:
                found.add(row)
                break
            ends.append(end)
    return found


def _counters(timeline: Timeline, places: dict[tuple[int, int], tuple[int, int]]) -> Iterator[bytes]:
    """Yields each sample of a hardware counter in the process of its GPU."""
    processes = {row.group: places[(index, 0)][0] for index, row in enumerate(timeline.rows)}
    for counter in timeline.counters:
        name, process = _json(f"{counter.name} [{counter.unit}]" if counter.unit else counter.name), processes.get(counter.group, 0)
        for first in range(0, len(counter.times), EVENTS_A_PIECE):
            piece = slice(first, first + EVENTS_A_PIECE)
            samples = zip((counter.times[piece] / 1e3).tolist(), counter.values[piece].tolist(), strict=True)
            lines = (b'{"ph":"C","name":%s,"ts":%.3f,"pid":%d,"args":{"value":%.9g}}' % (name, at, process, value) for at, value in samples)
            yield b",\n" + b",\n".join(lines)


def _flows(timeline: Timeline, places: dict[tuple[int, int], tuple[int, int]]) -> Iterator[bytes]:
    """Yields an arrow from each launch to each device event that shares its correlation."""
    columns = timeline.columns
    launches: dict[int, int] = {}
    calls = np.flatnonzero((columns["kind"] == KINDS.index("api")) & (columns["correlation"] > 0))
    for index in calls[np.argsort(columns["start"][calls], kind="stable")].tolist():
        launches.setdefault(int(columns["correlation"][index]), index)
    lines: list[bytes] = []
    for number, index in enumerate(np.flatnonzero(np.isin(columns["kind"], _ON_DEVICE) & (columns["correlation"] > 0)).tolist(), 1):
        launch = launches.get(int(columns["correlation"][index]))
        if launch is None:
            continue
        for phase, event, extra in ((b"s", launch, b""), (b"f", index, b',"bp":"e"')):
            row, depth = int(columns["row"][event]), int(columns["depth"][event])
            process, thread = places[(row, depth)] if (row, depth) in places else places[(row, 0)]
            lines.append(
                b'{"ph":"%s","id":%d,"name":"launch","cat":"launch","ts":%.3f,"pid":%d,"tid":%d%s}'
                % (phase, number, columns["start"][event] / 1e3, process, thread, extra)
            )
        if len(lines) >= EVENTS_A_PIECE:
            yield b",\n" + b",\n".join(lines)
            lines = []
    if lines:
        yield b",\n" + b",\n".join(lines)
