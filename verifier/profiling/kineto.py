"""Reads the Chrome trace of torch.profiler (Kineto): CUPTI's events on a GPU, operators by thread on the CPU."""

from __future__ import annotations

import json
from typing import Any

from verifier.profiling.nsight.nsys_schema import ImportProblem
from verifier.profiling.own_calls import PREFIX
from verifier.profiling.ranges import ROWS, range_kind
from verifier.profiling.recording import Recording
from verifier.profiling.timeline import RowKey, Timeline

_DEVICE_KINDS = {"kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset"}
_API = ("cuda_runtime", "cuda_driver")
_KINETO_NOISE = ("INVALID",)  # a runtime call without a name in this version of Kineto


def import_kineto(trace: bytes | str) -> Timeline:
    """Reads the timeline of a Chrome trace. Raises `ImportProblem` if the input is not a Chrome trace.

    Operators keep their threads as rows. Ranges named `own::<symbol>` (calls of the program's own functions) become events of kind "own"; all other
    user ranges become "nvtx".
    """
    try:
        document = json.loads(trace)
        events = document["traceEvents"]
        if not isinstance(events, list):
            raise TypeError("traceEvents is not a list")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ImportProblem(f"this is not a trace of torch.profiler: {error}") from None
    devices = {d.get("id"): str(d.get("name", "GPU")) for d in document.get("deviceProperties") or [] if isinstance(d, dict)}
    on_gpu = any(isinstance(e, dict) and e.get("cat") in _DEVICE_KINDS for e in events)
    recording = Recording("cupti" if on_gpu else "torch-profiler", next(iter(devices.values()), "GPU") if on_gpu else "CPU")
    threads: dict[Any, int] = {}
    skipped = 0
    for event in events:
        if not isinstance(event, dict) or event.get("ph") != "X":
            continue
        try:
            _add(recording, event, devices, threads)
        except (KeyError, TypeError, ValueError):
            skipped += 1
    if skipped:
        recording.warnings.append(f"{skipped} events of the trace were not understood and are left out")
    return recording.timeline()


def _add(recording: Recording, event: dict[str, Any], devices: dict[Any, str], threads: dict[Any, int]) -> None:
    category, name = event.get("cat"), str(event["name"])
    arguments = event.get("args") or {}
    start, duration = float(event["ts"]) * 1e3, float(event.get("dur", 0.0)) * 1e3  # the trace uses microseconds
    correlation = (0, int(arguments["correlation"])) if arguments.get("correlation") else None
    if category in _DEVICE_KINDS:
        device = arguments.get("device", event.get("pid"))
        group = devices.get(device, "GPU") + (f" {device}" if len(devices) > 1 else "")
        row: RowKey = ("gpu", f"Stream {arguments.get('stream', event.get('tid'))}", group)
        recording.add(row, _DEVICE_KINDS[category], _device_name(category, name), start, duration, correlation, _detail(arguments))
    elif category in _API and name not in _KINETO_NOISE:
        recording.add(("api", f"CUDA API, thread {_thread(threads, event)}", "CUDA"), "api", name, start, duration, correlation)
    elif category == "python_function":
        if name.startswith("nn.Module: "):  # from a recording with stacks, whose other frames would bury everything else
            _add_range(recording, name, _thread(threads, event), start, duration)
    elif category in ("cpu_op", "user_annotation"):
        thread = _thread(threads, event)
        if name.startswith(PREFIX):
            recording.add(("thread", f"Thread {thread}", "Process"), "own", name[len(PREFIX) :], start, duration)
        elif category == "user_annotation":
            if not name.startswith("ProfilerStep"):
                _add_range(recording, name, thread, start, duration)
        else:
            recording.add(("thread", f"Thread {thread}", "Process"), "operator", name, start, duration)


def _add_range(recording: Recording, text: str, thread: int, start: float, duration: float) -> None:
    kind, name = range_kind(text)
    if kind == "operator":  # the recorder lists operators itself, so this is a user range named like one
        kind, name = "nvtx", text
    recording.add(("nvtx", f"{ROWS.get(kind, 'Ranges')}, thread {thread}", "NVTX"), kind, name, start, duration)


def _thread(threads: dict[Any, int], event: dict[str, Any]) -> int:
    return threads.setdefault((event.get("pid"), event.get("tid")), len(threads) + 1)


def _device_name(category: str, name: str) -> str:
    return name if category == "kernel" else name.split(" (")[0]


def _detail(arguments: dict[str, Any]) -> dict[str, Any] | None:
    known = {
        "grid": arguments.get("grid"),
        "block": arguments.get("block"),
        "registers": arguments.get("registers per thread"),
        "shared": arguments.get("shared memory"),
        "bytes": arguments.get("bytes"),
        "graph_node": arguments.get("graph node id"),
    }
    return {key: value for key, value in known.items() if value is not None} or None
