"""Reads from a timeline what a program's host code does in a call: waits, allocations, copies, fills, streams.

Figures are means over the profiled calls. Each profiled call ends with a wait that the profiler adds (`calls.py`); it is excluded.
"""

from __future__ import annotations

import numpy as np

from verifier.jobs import HostCalls, Moved
from verifier.profiling.digest import ITERATION
from verifier.profiling.timeline import KINDS, Timeline

_KERNEL, _COPY, _SET, _API, _NVTX, _GRAPH = (KINDS.index(kind) for kind in ("kernel", "memcpy", "memset", "api", "nvtx", "graph"))
WAITS = ("cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize", "cuCtxSynchronize", "cuStreamSynchronize", "cuEventSynchronize")
ALLOCATIONS = ("cudaMalloc", "cudaFree", "cudaMallocHost", "cudaFreeHost", "cudaHostAlloc", "cuMemAlloc", "cuMemFree", "cudaMallocManaged")
KEPT_GAPS = 3
BLOCKING = ("cudaMemcpy", "cuMemcpyDtoH", "cuMemcpyHtoD")  # synchronous copies


def host_calls(timeline: Timeline) -> HostCalls | None:
    """Returns the host's calls; null if no ranges named `iter` delimit the profiled calls."""
    columns = timeline.columns
    start, end, kind, name = columns["start"], columns["start"] + columns["duration"], columns["kind"], columns["name"]
    bounds = (kind == _NVTX) & np.isin(name, [index for index, text in enumerate(timeline.names) if text == ITERATION])
    if not bounds.any():
        return None
    order = np.argsort(start[bounds])
    begins, ends = start[bounds][order], end[bounds][order]
    count = len(begins)
    inside = np.searchsorted(begins, start, side="right") - 1
    inside = np.where((inside >= 0) & (start <= ends[np.maximum(inside, 0)]), inside, -1)
    found = HostCalls()
    # A correlated call and its device event are separate timeline entries. API entries belong to the host, the others to the device.
    for index in np.flatnonzero((kind == _API) & (inside >= 0)).tolist():
        text, us = timeline.names[name[index]].partition("_")[0], float(end[index] - start[index]) / 1e3
        if text in WAITS or text in BLOCKING:
            found.waits += 1
            found.wait_us += us
        elif text in ALLOCATIONS:
            found.allocations += 1
            found.allocation_us += us
    own_waits = _last_waits(timeline, inside, count)
    found.waits = max(found.waits - len(own_waits), 0.0)
    found.wait_us = max(found.wait_us - sum(own_waits), 0.0)
    copies: dict[str, Moved] = {}
    for index in np.flatnonzero(np.isin(kind, (_COPY, _SET)) & (inside >= 0)).tolist():
        text = timeline.names[name[index]]
        moved = found.fills if kind[index] == _SET else copies.setdefault(_direction(text), Moved())
        detail = timeline.details[int(columns["detail"][index]) - 1] if columns["detail"][index] else {}
        moved.count += 1
        moved.us += float(end[index] - start[index]) / 1e3
        moved.bytes += float(detail.get("bytes") or 0)
    kernels = np.flatnonzero((kind == _KERNEL) & (inside >= 0))
    found.streams = len(set(columns["row"][kernels].tolist()))
    found.kernel_us = float((end[kernels] - start[kernels]).sum()) / 1e3
    device = np.flatnonzero(np.isin(kind, (_KERNEL, _COPY, _SET, _GRAPH)) & (inside >= 0))
    found.device_us = _union(start[device], end[device]) / 1e3
    calls = [device[inside[device] == i] for i in range(count)]
    worked = [(i, float(start[mine].min()), float(end[mine].max()), _union(start[mine], end[mine])) for i, mine in enumerate(calls) if len(mine)]
    found.begin_us = _mean([first - begins[i] for i, first, _, _ in worked]) * count
    found.gap_us = _mean([last - first - busy for _, first, last, busy in worked]) * count
    found.after_us = _mean([ends[i] - last for i, _, last, _ in worked]) * count
    found.gaps = _longest_gaps(timeline, calls, count)
    first = [device[inside[device] == i][np.argmin(start[device[inside[device] == i]])] for i, *_ in worked]
    found.begin_calls_us, found.begin_launch_us = _before_work(timeline, [float(begins[i]) for i, *_ in worked], first, count)
    return _per_call(found, copies, count)


def _longest_gaps(timeline: Timeline, calls: list[np.ndarray], count: int) -> dict[str, float]:
    """Returns the device's idle time before pieces of work, totalled by the name of that work, in microseconds per call, longest first."""
    columns, idle = timeline.columns, dict[str, float]()
    for mine in calls:
        order = mine[np.argsort(columns["start"][mine], kind="stable")]
        start, end = columns["start"][order], columns["start"][order] + columns["duration"][order]
        gaps = np.maximum(start[1:] - np.maximum.accumulate(end)[:-1], 0.0)
        for index, gap in zip(columns["name"][order[1:]].tolist(), gaps.tolist(), strict=True):
            idle[timeline.names[index]] = idle.get(timeline.names[index], 0.0) + gap / 1e3 / count
    longest = sorted(idle, key=lambda name: -idle[name])[:KEPT_GAPS]
    return {name: round(idle[name], 3) for name in longest if idle[name] > 0}


def _before_work(timeline: Timeline, begins: list[float], first: list[int], count: int) -> tuple[float | None, float | None]:
    """Returns two sums over the calls: the time in CUDA calls before the one that launches the first work, and the time from the start of that call
    to the start of the device; null if the launch of any first work was not recorded. The remaining time before the first work is the host's own:
    Python, PyTorch's operators and allocator, checks."""
    columns = timeline.columns
    start, end = columns["start"], columns["start"] + columns["duration"]
    api = np.flatnonzero(columns["kind"] == _API)
    calls_us, launch_us = [], []
    for begin, work in zip(begins, first, strict=True):
        launches = api[(columns["correlation"][api] == columns["correlation"][work]) & (columns["correlation"][api] > 0)]
        if not len(launches):
            return None, None
        launched = float(start[launches].min())
        before = api[(start[api] >= begin) & (start[api] < launched)]
        calls_us.append(_union(start[before], np.minimum(end[before], launched)))
        launch_us.append(float(start[work]) - max(launched, begin))
    return (_mean(calls_us) * count, _mean(launch_us) * count) if calls_us else (None, None)


def _last_waits(timeline: Timeline, inside: np.ndarray, count: int) -> list[float]:
    """Returns the duration of each profiled call's last wait, which is the profiler's."""
    columns = timeline.columns
    waits = [index for index, text in enumerate(timeline.names) if text.partition("_")[0] in WAITS]
    chosen = np.flatnonzero((columns["kind"] == _API) & np.isin(columns["name"], waits) & (inside >= 0))
    last: dict[int, tuple[float, float]] = {}
    for index in chosen.tolist():
        begin = float(columns["start"][index])
        if begin >= last.get(int(inside[index]), (-1.0, 0.0))[0]:
            last[int(inside[index])] = (begin, float(columns["duration"][index]) / 1e3)
    return [duration for _, duration in last.values()][:count]


def _mean(nanoseconds: list[float]) -> float:
    """Returns the mean in microseconds, with a minimum of 0; 0 if there are no values."""
    return max(float(np.mean(nanoseconds)), 0.0) / 1e3 if nanoseconds else 0.0


def _direction(text: str) -> str:
    for direction in ("HtoD", "DtoH", "DtoD"):
        if direction in text:
            return direction
    return "other"


def _union(start: np.ndarray, end: np.ndarray) -> float:
    if not len(start):
        return 0.0
    order = np.argsort(start)
    start, end = start[order], end[order]
    reached = np.concatenate(([-np.inf], np.maximum.accumulate(end)[:-1]))
    return float(np.maximum(end - np.maximum(start, reached), 0.0).sum())


def _per_call(found: HostCalls, copies: dict[str, Moved], count: int) -> HostCalls:
    def each(moved: Moved) -> Moved:
        return Moved(count=moved.count / count, us=moved.us / count, bytes=moved.bytes / count)

    figures = {
        name: round(value / count, 3) for name, value in found.model_dump(include={"waits", "wait_us", "allocations", "allocation_us"}).items()
    }
    names = ("device_us", "kernel_us", "begin_us", "begin_calls_us", "begin_launch_us", "gap_us", "after_us")
    figures |= {name: round(value / count, 3) for name in names if (value := getattr(found, name)) is not None}
    return found.model_copy(update={**figures, "fills": each(found.fills), "copies": {name: each(moved) for name, moved in copies.items()}})
