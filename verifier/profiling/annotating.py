"""Transfers the ranges of modules and operators from the one call that has them to the measured calls, which have none.

Hooks cost time on the host, so the measured calls run without them (`calls.py`). A call that did the same work in the same order did it in the same
modules. In such a call, each range extends from the first to the last piece of work that the range contains in the annotated call.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from verifier.profiling.digest import ANNOTATED, ITERATION
from verifier.profiling.recording import nesting
from verifier.profiling.timeline import COLUMNS, KINDS, Timeline

_NVTX, _API, _OPERATOR, _OWN, _MODULE = (KINDS.index(kind) for kind in ("nvtx", "api", "operator", "own", "module"))
_ON_DEVICE = [KINDS.index(kind) for kind in ("kernel", "memcpy", "memset", "graph")]


def with_ranges(timeline: Timeline) -> Timeline:
    """Returns the timeline with ranges added to the calls named `iter`, or an unchanged timeline if no call did the same work as the annotated
    one."""
    columns = timeline.columns
    start, end = columns["start"], columns["start"] + columns["duration"]
    pattern, calls = _named(timeline, ANNOTATED), _named(timeline, ITERATION)
    if len(pattern) != 1:
        return timeline
    work, signature = _work(timeline)
    low, high = np.searchsorted(start[work], (start[pattern[0]], end[pattern[0]]))
    known = signature[low:high]
    on_host = np.array([row.kind == "nvtx" for row in timeline.rows], dtype=bool)[columns["row"]]
    within = (start >= start[pattern[0]]) & (end <= end[pattern[0]])
    ranges = np.flatnonzero(np.isin(columns["kind"], (_MODULE, _OPERATOR)) & on_host & within)
    first, last = (np.searchsorted(start[work[low:high]], times[ranges]) for times in (start, end))
    ranges, first, last = (values[last > first] for values in (ranges, first, last))
    made = []
    for call in calls.tolist():
        begin, until = np.searchsorted(start[work], (start[call], end[call]))
        if until - begin == len(known) and np.array_equal(signature[begin:until], known) and len(ranges):
            mine = work[begin:until]
            ends = np.array([end[mine[a:b]].max() for a, b in zip(first.tolist(), last.tolist(), strict=True)])
            made.append(_copies(timeline, ranges, start[mine[first]], ends))
    return _added(timeline, made) if made else timeline


def _named(timeline: Timeline, name: str) -> np.ndarray:
    chosen = [index for index, text in enumerate(timeline.names) if text == name]
    return np.flatnonzero((timeline.columns["kind"] == _NVTX) & np.isin(timeline.columns["name"], chosen))


def _work(timeline: Timeline) -> tuple[np.ndarray, np.ndarray]:
    """Returns the host's work in time order, and a number that is equal for equal work. Launches are identified by what they launched; without a
    device, operators and the program's own functions are identified by name."""
    columns = timeline.columns
    device = np.flatnonzero(np.isin(columns["kind"], _ON_DEVICE) & (columns["correlation"] > 0))
    if len(device):
        launched = dict(zip(columns["correlation"][device][::-1].tolist(), columns["name"][device][::-1].tolist(), strict=True))
        calls = np.flatnonzero((columns["kind"] == _API) & np.isin(columns["correlation"], list(launched)))
        names = np.array([launched[c] for c in columns["correlation"][calls].tolist()], dtype=np.int64)
    else:
        threads = np.array([row.kind == "thread" for row in timeline.rows], dtype=bool)[columns["row"]]
        calls = np.flatnonzero(np.isin(columns["kind"], (_OPERATOR, _OWN)) & threads)
        names = columns["name"][calls].astype(np.int64)
    order = np.lexsort((-columns["duration"][calls], columns["start"][calls]))
    return calls[order], names[order]


def _copies(timeline: Timeline, ranges: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> dict[str, np.ndarray]:
    copied = {name: column[ranges] for name, column in timeline.columns.items()}
    return copied | {"start": starts, "duration": ends - starts}


def _added(timeline: Timeline, made: list[dict[str, np.ndarray]]) -> Timeline:
    joined = {name: np.concatenate([timeline.columns[name], *(part[name] for part in made)]) for name, _ in COLUMNS}
    order = np.lexsort((-joined["duration"], joined["start"], joined["row"]))
    columns = {name: joined[name][order].astype(dtype) for name, dtype in COLUMNS}
    columns["depth"] = nesting(columns["row"], columns["start"], columns["duration"])
    return replace(timeline, columns=columns)
