"""The runner's half of the `integrity` stage: a few calls under the profiler, and observations of what the program does during and after them.

Everything that this module needs is imported, and bound to names in the module, before the program is imported.
"""

# sandboxed: calls programs

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import sys
import tempfile
import threading
from collections.abc import Callable
from time import perf_counter, process_time, sleep
from typing import Any

import torch
from torch.profiler import record_function

from verifier.float8 import wide
from verifier.integrity.blocked import compiled_graphs, settings, watch
from verifier.integrity.launches import CALL, HANDOVER, Launch, Seen, beside, read_launches
from verifier.layout import encode
from verifier.profiling.own_calls import PREFIX
from verifier.profiling.torch_recorder import recording

CALLS = 3
CPU_SECONDS, MOST_CALLS = 0.1, 30  # total seconds of short calls on the CPU; long compared with a 10 ms preemption of a thread
LATE_SECONDS = 0.03  # waiting time after the calls, in case other threads are still working
WINDOWS = 4
SPIN_SECONDS = 0.025  # idle OpenMP threads spin for this long before they sleep
MAX_KERNELS, MAX_PAIRS = 48, 512
_INSTALLED = tuple(os.path.realpath(path) + "/" for path in sys.path if path and os.path.isabs(path) and len(path) > 1)
_CACHES = re.compile(r"/(?:\.triton|triton[^/]*|torchinductor[^/]*)/")


def observe(device: Any, forward: Callable[[], Any], seed: Callable[[], None], before: dict[str, str]) -> dict[str, Any]:
    """Returns fields of `Evidence`. `forward` makes one call, `seed` seeds every generator before the call, and `before` contains the policy's
    settings."""
    seed()
    forward()
    device.sync()
    threads = threading.active_count()
    seen = {} if device.torch_device != "cpu" else _on_cpu(forward, seed)  # on a GPU, work is recorded in calls of the timed form
    with contextlib.suppress(Exception):  # other observations must not depend on whether there is memory for copies
        seen |= _afterwards(device, forward, seed)
    seen["threads_left"] = max(threading.active_count() - threads, 0)
    now = settings()
    seen["settings"] = {name: value for name, value in now.items() if before.get(name, value) != value}

    def call() -> None:
        seed()
        forward()
        device.sync()

    seen["compiled"] = compiled_graphs()
    if not seen["compiled"]:  # another mode would cause a complete recompilation
        with contextlib.suppress(Exception):
            seen |= watch(call)
    return seen


class Recorder:
    """Uses CUPTI to record the calls that go through `around`, with the operator behind each launch, from construction until `end`. The tiny kernel
    after each call runs on the stream that a caller would use next."""

    def __init__(self, device: Any):
        self._device = device
        self._marker = torch.zeros(1, device=device.torch_device)
        device.sync()
        self._recorded = recording(cuda=True)
        self._recorded.__enter__()

    def around(self, invoke: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            with record_function(CALL):
                output = invoke(*arguments)
            with record_function(HANDOVER):
                self._marker.add_(1)
            return output

        return call

    def end(self) -> dict[str, Any]:
        self._device.sync()
        sleep(0.005)
        self._device.sync()
        self._recorded.__exit__(None, None, None)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "trace.json")
            self._recorded.export_chrome_trace(path)
            with open(path, encoding="utf-8", errors="replace") as file:
                return _told(read_launches(json.load(file)))


def _told(seen: Seen) -> dict[str, Any]:
    table: dict[tuple[str, str], list[Launch]] = {}
    for launch in seen.launches:
        table.setdefault(_row(launch), []).append(launch)
    calls = max(seen.calls, 1)
    kernels: list[dict[str, Any]] = [
        {"name": name, "calls": len(found) / calls, "ms": sum(launch.ms for launch in found) / calls, "share": 0.0, "own": False, "via": via}
        for (name, via), found in table.items()
    ]
    kernels.sort(key=lambda kernel: -kernel["ms"])
    numbers = {(kernel["name"], kernel["via"]): number for number, kernel in enumerate(kernels[:MAX_KERNELS])}
    together: dict[tuple[int, int], float] = {}
    for pair, ms in beside(seen.launches).items():
        one, other = (numbers.get(_row(launch)) for launch in pair)
        if one is not None and other is not None and one != other:
            together[one, other] = together.get((one, other), 0.0) + ms / calls
    return {
        "kernels": kernels[:MAX_KERNELS],
        "beside": [(*pair, ms) for pair, ms in sorted(together.items(), key=lambda item: -item[1])[:MAX_PAIRS]],
        "recorded": seen.calls,
        "busy_ms": seen.busy_ms,
        "span_ms": seen.span_ms,
        "host_ms": seen.host_ms,
        "late_ms": seen.late_ms / calls,
        "unjoined_ms": seen.unjoined_ms / calls,
    }


def _row(launch: Launch) -> tuple[str, str]:
    """Returns what identifies a launch's row among the kernels: its name and the operator behind it."""
    return launch.name if launch.kind == "kernel" else launch.name.split(" (")[0], launch.via[:200]


def _on_cpu(forward: Callable[[], Any], seed: Callable[[], None]) -> dict[str, Any]:
    """Returns operators by self time over all threads, and the ranges of the program's own functions. In these ranges, operators do not count as the
    program's own work."""
    begin = perf_counter()
    seed()
    forward()
    calls = min(max(CALLS, math.ceil(CPU_SECONDS / max(perf_counter() - begin, 1e-6))), MOST_CALLS)
    wall = 0.0
    with recording(cuda=False) as recorded:
        for _ in range(calls):
            seed()
            begin = perf_counter()
            forward()
            wall += perf_counter() - begin
    kernels = []
    for row in recorded.key_averages():
        own = row.key.startswith(PREFIX)
        if row.self_cpu_time_total > 0 and not row.key.startswith("[memory]"):
            name, ms = row.key.removeprefix(PREFIX), row.self_cpu_time_total / calls / 1e3
            kernels.append({"name": name[:300], "calls": row.count / calls, "ms": ms, "share": 0.0, "own": own, "via": ""})
    kernels.sort(key=lambda kernel: -float(kernel["ms"]))
    return {"kernels": kernels[:MAX_KERNELS], "wall_ms": wall / calls * 1e3}


def _afterwards(device: Any, forward: Callable[[], Any], seed: Callable[[], None]) -> dict[str, Any]:
    """Returns whether outputs still change, or processors are still busy, long after a call has returned."""
    seed()
    outputs: list[torch.Tensor] = []
    encode(forward(), outputs)
    then = [tensor.clone() for tensor in outputs]
    device.sync()
    sleep(LATE_SECONDS)
    device.sync()
    changed = any(a.shape != b.shape or not _same(a, b) for a, b in zip(then, outputs, strict=True))
    idle = math.inf
    for _ in range(WINDOWS):  # a thread that is always working appears in every window; a busy machine only prolongs the spinning of idle threads
        sleep(SPIN_SECONDS)
        begin, spent = perf_counter(), process_time()
        sleep(LATE_SECONDS)
        idle = min(idle, (process_time() - spent) / max(perf_counter() - begin, 1e-9))
        if idle < 0.1:
            break
    return {"changed_late": changed, "idle_cpu": idle}


def _same(left: torch.Tensor, right: torch.Tensor) -> bool:
    left, right = wide(left), wide(right)
    return torch.equal(left, right) or (left.is_floating_point() and torch.equal(left.nan_to_num(), right.nan_to_num()))


def foreign_libraries(known: frozenset[str], home: str, build: str) -> list[str]:
    """Returns the names of shared libraries that the program loaded from files that it wrote itself, in `home` or in memory. The builder's folder
    `build` and the caches of Triton and torch.compile are excluded."""
    written = [path for path in mapped_libraries() - known if path.startswith((home.rstrip("/") + "/", "/memfd:", "/dev/shm/"))]
    return sorted({os.path.basename(path) for path in written if not path.startswith((build, *_INSTALLED)) and not _CACHES.search(path)})[:16]


def mapped_libraries() -> frozenset[str]:
    """Returns the files that have executable pages in this process."""
    found = set()
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
            for line in file:
                part = line.split(None, 5)
                if len(part) == 6 and "x" in part[1] and part[5].startswith("/"):
                    found.add(part[5].strip())
    except OSError:
        pass
    return frozenset(found)
