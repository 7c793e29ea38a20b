"""Condenses a timeline into the few figures that a diagnosis needs, over the calls delimited by ranges named `iter`.

A device event belongs to the iteration whose range contains the call that launched it (the two share a correlation ID). If no launch was recorded, it
belongs to the iteration in which it ran. On the CPU, the "kernels" are operators and the program's own functions, measured by self time, and a
"launch" is a call of one of them that is not nested in another call.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from verifier.jobs import KernelProfile
from verifier.profiling.timeline import KINDS, Timeline

ITERATION = "iter"
ANNOTATED = "with modules and operators"  # the range of an additional call whose times are not counted
_KERNEL, _COPY, _SET, _API, _NVTX, _OPERATOR, _OWN, _GRAPH = (
    KINDS.index(k) for k in ("kernel", "memcpy", "memset", "api", "nvtx", "operator", "own", "graph")
)
_DEVICE_KINDS = (_KERNEL, _COPY, _SET, _GRAPH)


@dataclass
class Digest:
    iterations: int
    window: tuple[float, float]  # ns on the timeline's clock, from the first iteration's start to the end of the last work that it launched
    wall_us_per_iteration: float
    device_busy: float | None
    launches_per_iteration: float | None
    gap_us_p50: float | None
    kernels: list[KernelProfile]
    warnings: list[str]

    @property
    def own_share(self) -> float | None:
        """Returns the share of the program's own kernels in the time of all kernels; null if none ran."""
        total = sum(kernel.total_us for kernel in self.kernels)
        return sum(kernel.total_us for kernel in self.kernels if kernel.own) / total if total > 0 else None


def digest(timeline: Timeline, is_own: Callable[[str], bool], on_device: bool) -> Digest:
    """Condenses a timeline. With `on_device`, the figures come from GPU events; otherwise, they come from operators on CPU threads."""
    begins, ends, warnings = _iterations(timeline)
    if on_device:
        return _digest_device(timeline, is_own, begins, ends, warnings)
    return _digest_threads(timeline, begins, ends, warnings)


def _iterations(timeline: Timeline) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Returns the starts and ends of the ranges named `iter`, in order; if there are none, the whole timeline counts as one range."""
    start, duration = timeline.columns["start"], timeline.columns["duration"]
    chosen = (timeline.columns["kind"] == _NVTX) & np.isin(
        timeline.columns["name"], [i for i, name in enumerate(timeline.names) if name == ITERATION]
    )
    if chosen.any():
        order = np.argsort(start[chosen])
        return start[chosen][order], (start + duration)[chosen][order], []
    if not len(start):
        return np.zeros(1), np.zeros(1), ["the profiler recorded no events"]
    return (
        np.array([start.min()]),
        np.array([(start + duration).max()]),
        [f"no range named {ITERATION!r}: the figures cover the whole recording"],
    )


def _owner(begins: np.ndarray, ends: np.ndarray, when: np.ndarray) -> np.ndarray:
    """Returns the index of the iteration that contains each time, or -1 if there is none."""
    index = np.searchsorted(begins, when, side="right") - 1
    inside = (index >= 0) & (when <= ends[np.maximum(index, 0)])
    return np.where(inside, index, -1)


def _digest_device(timeline: Timeline, is_own: Callable[[str], bool], begins: np.ndarray, ends: np.ndarray, warnings: list[str]) -> Digest:
    columns = timeline.columns
    launched_at: dict[int, float] = {}
    api = (columns["kind"] == _API) & (columns["correlation"] > 0)
    for correlation, when in zip(columns["correlation"][api].tolist(), columns["start"][api].tolist(), strict=True):
        launched_at[correlation] = min(when, launched_at.get(correlation, math.inf))
    device = np.flatnonzero(np.isin(columns["kind"], _DEVICE_KINDS))
    start, duration, correlation = columns["start"][device], columns["duration"][device], columns["correlation"][device]
    when = np.array([launched_at.get(c, s) for c, s in zip(correlation.tolist(), start.tolist(), strict=True)], dtype=np.float64)
    owner = _owner(begins, ends, when)
    inside = owner >= 0
    device, start, duration, correlation, owner = (values[inside] for values in (device, start, duration, correlation, owner))
    end = start + duration
    n = len(begins)
    last = max(float(ends[-1]), float(end.max())) if len(end) else float(ends[-1])
    window = (float(begins[0]), last)
    span = max(window[1] - window[0], 1.0)
    kinds = columns["kind"][device]
    kernels = _kernels(timeline, device[kinds == _KERNEL], is_own)
    launched = np.isin(kinds, (_KERNEL, _GRAPH))
    # The kernels of one graph launch share its correlation; kernels without a correlation count individually.
    launches = len(set(correlation[launched & (correlation > 0)].tolist())) + int((launched & (correlation == 0)).sum())
    if not len(device):
        warnings.append("no work ran on the device within the iterations")
    return Digest(
        iterations=n,
        window=window,
        wall_us_per_iteration=span / n / 1e3,
        device_busy=_union(start, end) / span,
        launches_per_iteration=launches / n,
        gap_us_p50=_gap_p50(start, end, owner),
        kernels=kernels,
        warnings=warnings,
    )


def _kernels(timeline: Timeline, chosen: np.ndarray, is_own: Callable[[str], bool]) -> list[KernelProfile]:
    columns = timeline.columns
    total = float(columns["duration"][chosen].sum()) or 1.0
    found = []
    for name in np.unique(columns["name"][chosen]).tolist():
        events = chosen[columns["name"][chosen] == name]
        time = float(columns["duration"][events].sum())
        described = columns["detail"][events]
        detail = timeline.details[int(described[0]) - 1] if described[0] else {}
        found.append(
            KernelProfile(
                name=timeline.names[name],
                own=is_own(timeline.names[name]),
                calls=len(events),
                total_us=time / 1e3,
                mean_us=time / len(events) / 1e3,
                share=time / total,
                grid=_triple(detail.get("grid")),
                block=_triple(detail.get("block")),
                registers=detail.get("registers"),
                shared_bytes=detail["shared_static"] + detail["shared_dynamic"] if "shared_static" in detail else detail.get("shared"),
            )
        )
    return sorted(found, key=lambda kernel: -kernel.total_us)


def _digest_threads(timeline: Timeline, begins: np.ndarray, ends: np.ndarray, warnings: list[str]) -> Digest:
    """Condenses operators and the program's own functions on CPU threads; `start` is sorted within each row."""
    columns = timeline.columns
    chosen = np.flatnonzero(np.isin(columns["kind"], (_OPERATOR, _OWN)))
    owner = _owner(begins, ends, columns["start"][chosen])
    chosen, owner = chosen[owner >= 0], owner[owner >= 0]
    self_time, outermost = _self_times(columns["row"][chosen], columns["start"][chosen], columns["duration"][chosen])
    total = float(self_time.sum()) or 1.0
    kernels = []
    for kind, name in sorted({(int(columns["kind"][i]), int(columns["name"][i])) for i in chosen}):
        mine = (columns["name"][chosen] == name) & (columns["kind"][chosen] == kind)
        time = float(self_time[mine].sum())
        calls = int(mine.sum())
        kernels.append(
            KernelProfile(
                name=timeline.names[name], own=kind == _OWN, calls=calls, total_us=time / 1e3, mean_us=time / calls / 1e3, share=time / total
            )
        )
    n = len(begins)
    window = (float(begins[0]), float(ends[-1]))
    inside = float((ends - begins).sum()) or 1.0
    start, end = columns["start"][chosen][outermost], (columns["start"] + columns["duration"])[chosen][outermost]
    if not len(chosen):
        warnings.append("no operator ran within the iterations")
    return Digest(
        iterations=n,
        window=window,
        wall_us_per_iteration=inside / n / 1e3,
        device_busy=min(_union(start, end) / inside, 1.0),
        launches_per_iteration=float(outermost.sum()) / n,
        gap_us_p50=_gap_p50(start, end, owner[outermost]),
        kernels=sorted(kernels, key=lambda kernel: -kernel.total_us),
        warnings=warnings,
    )


def _self_times(row: np.ndarray, start: np.ndarray, duration: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns each event's self time (its time minus that of the events directly inside it), and whether it is outermost."""
    own = duration.astype(np.float64).copy()
    outermost = np.zeros(len(start), dtype=bool)
    stack: list[int] = []
    for index in np.lexsort((-duration, start, row)).tolist():
        while stack and (row[stack[-1]] != row[index] or start[stack[-1]] + duration[stack[-1]] <= start[index]):
            stack.pop()
        if stack:
            own[stack[-1]] -= duration[index]
        else:
            outermost[index] = True
        stack.append(index)
    return np.maximum(own, 0.0), outermost


def _union(start: np.ndarray, end: np.ndarray) -> float:
    """Returns the total length of the union of intervals."""
    if not len(start):
        return 0.0
    order = np.argsort(start)
    start, end = start[order], end[order]
    reached = np.concatenate(([-np.inf], np.maximum.accumulate(end)[:-1]))
    return float(np.maximum(end - np.maximum(start, reached), 0.0).sum())


def _gap_p50(start: np.ndarray, end: np.ndarray, owner: np.ndarray) -> float | None:
    """Returns the median idle time between consecutive events of an iteration, in microseconds; null if every iteration has only one event."""
    order = np.lexsort((start, owner))
    start, end, owner = start[order], end[order], owner[order]
    gaps: list[float] = []
    for iteration in np.unique(owner):
        mine = owner == iteration
        reached = np.maximum.accumulate(end[mine])
        gaps.extend(np.maximum(start[mine][1:] - reached[:-1], 0.0).tolist())
    return float(np.median(gaps)) / 1e3 if gaps else None


def _triple(values: list[int] | None) -> tuple[int, int, int] | None:
    return (int(values[0]), int(values[1]), int(values[2])) if values and len(values) == 3 and None not in values else None
