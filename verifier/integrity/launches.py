"""Reads the device work of a few observed calls from a Chrome trace recorded by torch.profiler.

It determines what ran, who launched it, and whether it had finished when the outputs were handed over. The runner encloses each call in the `CALL`
range. As soon as forward has returned, the runner launches a tiny kernel of its own in the `HANDOVER` range, on the stream that a caller would use
next. If any work of the call is still running on another stream when that kernel starts, the program never waited for that work.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

CALL, HANDOVER = "stitch::call", "stitch::handover"
SLACK_US = 5.0  # tolerance between the time stamps of different streams
_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_HOST = ("cuda_runtime", "cuda_driver")
_LIBRARY_OPERATORS = ("aten::", "prims::", "cudnn::", "mkldnn::", "quantized::", "torchvision::", "inductor::", "c10d::")
_COMPILER_RANGES = ("Torch-Compiled Region", "CompiledFunction", "CompiledFxGraph", "## Call CompiledFxGraph", "TorchDynamo")


@dataclass(frozen=True)
class Launch:
    """One kernel, copy or fill operation on the device. Times are in microseconds on the trace's clock. `via` is the innermost operator that launched
    the work, if any."""

    name: str
    kind: str
    start: float
    end: float
    stream: int
    via: str
    launched: float  # the time when the host launched the work, or the device's start time if that is unknown

    @property
    def ms(self) -> float:
        return (self.end - self.start) / 1e3


@dataclass
class Seen:
    """The totals over all calls. `late_ms` is device work that another thread launched after forward had returned. `unjoined_ms` is work on other
    streams that was still running when the outputs were handed over. `busy_ms` is the union of the intervals of a call's device work."""

    calls: int = 0
    launches: list[Launch] = field(default_factory=list)
    late_ms: float = 0.0
    unjoined_ms: float = 0.0
    busy_ms: float = 0.0
    span_ms: float = 0.0  # from the first start to the last end, averaged over calls
    streams: int = 0
    host_ms: float = 0.0  # time of a call until forward returned, averaged over calls


def by_library(via: str) -> bool:
    """Returns whether the operator that launched a kernel belongs to torch or a compiler. Such a kernel is never the program's own, whatever its
    name. Inductor's ranges have the names of its kernels, and no namespace: `triton_ops::gelu` is an operator that a program registers."""
    compiled = via.startswith("triton_") and "::" not in via
    return compiled or via.startswith((*_LIBRARY_OPERATORS, *_COMPILER_RANGES))


def read_launches(trace: dict[str, Any]) -> Seen:
    """Reads a trace. Raises `ValueError` if the text is not a trace. Unknown events are skipped."""
    events = trace.get("traceEvents")
    if not isinstance(events, list):
        raise ValueError("this is not a trace of torch.profiler")
    operators: dict[int, str] = {}
    hosts: dict[int, tuple[float, Any]] = {}
    calls: list[tuple[float, float]] = []
    handovers: list[tuple[float, float]] = []
    device: list[dict[str, Any]] = []
    thread: Any = None  # the thread that makes the calls
    for event in events:
        if not isinstance(event, dict) or event.get("ph") != "X" or not isinstance(event.get("ts"), (int, float)):
            continue
        category, name, arguments = event.get("cat"), str(event.get("name", "")), event.get("args") or {}
        begin = float(event["ts"])
        end = begin + float(event.get("dur") or 0.0)
        if category in _DEVICE:
            device.append(event)
        elif category in _HOST and arguments.get("correlation"):
            hosts.setdefault(int(arguments["correlation"]), (begin, event.get("tid")))
        elif category in ("cpu_op", "user_annotation"):
            if name == CALL:
                calls.append((begin, end))
                thread = event.get("tid")
            elif name == HANDOVER:
                handovers.append((begin, end))
            elif arguments.get("External id") is not None:
                operators[int(arguments["External id"])] = name
    return _assigned(device, operators, hosts, sorted(calls), sorted(handovers), thread)


def _assigned(
    device: list[dict[str, Any]],
    operators: dict[int, str],
    hosts: dict[int, tuple[float, Any]],
    calls: list[tuple[float, float]],
    handovers: list[tuple[float, float]],
    thread: Any,
) -> Seen:
    seen = Seen(calls=len(calls))
    if calls:
        seen.host_ms = sum(end - begin for begin, end in calls) / 1e3 / len(calls)
    markers: dict[int, Launch] = {}
    unasked: list[Launch] = []
    owners: list[tuple[int, Launch]] = []
    for event in device:
        launch, known, asker = _launch(event, operators, hosts, thread)
        marker = _within(handovers, launch.launched) if known and asker == thread else None
        if marker is not None:
            markers[marker] = launch
            continue
        call = _within(calls, launch.launched)
        if call is not None:
            owners.append((call, launch))
        elif not known:
            unasked.append(launch)
        elif calls and launch.launched > calls[0][0] and asker != thread:
            seen.late_ms += launch.ms
            seen.launches.append(launch)
    for launch in unasked:
        # Some driver functions leave no record on the host. After a call's marker, the party fills its own memory with one of these functions.
        call = max((number for number, (begin, _) in enumerate(calls) if begin <= launch.start), default=None)
        party = launch.kind == "memset" and call in markers and launch.start > markers[call].end
        if call is not None and not party:
            owners.append((call, launch))
    seen.launches += [launch for _, launch in owners]
    seen.streams = len({launch.stream for launch in seen.launches})
    for number in range(len(calls)):
        own = [launch for call, launch in owners if call == number]
        seen.busy_ms += union((launch.start, launch.end) for launch in own) / 1e3 / len(calls)
        if own:
            seen.span_ms += (max(launch.end for launch in own) - min(launch.start for launch in own)) / 1e3 / len(calls)
        handed = markers.get(number)
        if handed is not None:
            seen.unjoined_ms += sum(
                (launch.end - handed.start) / 1e3 for launch in own if launch.stream != handed.stream and launch.end > handed.start + SLACK_US
            )
    return seen


def _launch(event: dict[str, Any], operators: dict[int, str], hosts: dict[int, tuple[float, Any]], thread: Any) -> tuple[Launch, bool, Any]:
    """Returns a device event, whether the host's launch time is known for it, and the launching thread."""
    arguments = event.get("args") or {}
    start = float(event["ts"])
    correlation = arguments.get("correlation")
    known = hosts.get(int(correlation)) if correlation else None
    asked, asker = known if known is not None else (start, thread)
    external = arguments.get("External id")
    via = operators.get(int(external), "") if external is not None else ""
    stream = arguments.get("stream", event.get("tid"))
    launch = Launch(
        str(event.get("name", ""))[:300],
        {"kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset"}[event["cat"]],
        start,
        start + float(event.get("dur") or 0.0),
        int(stream) if isinstance(stream, int) else 0,
        via,
        asked,
    )
    return launch, known is not None, asker


def _within(ranges: list[tuple[float, float]], when: float) -> int | None:
    return next((number for number, (begin, end) in enumerate(ranges) if begin <= when <= end), None)


def beside(launches: Iterable[Launch]) -> dict[tuple[Launch, Launch], float]:
    """Returns the time in milliseconds for which two launches ran at the same time, for each pair that did."""
    found: dict[tuple[Launch, Launch], float] = {}
    running: list[Launch] = []
    for launch in sorted(launches, key=lambda one: one.start):
        running = [one for one in running if one.end > launch.start]
        found |= {(one, launch): (min(one.end, launch.end) - launch.start) / 1e3 for one in running}
        running.append(launch)
    return found


def union(spans: Iterable[tuple[float, float]]) -> float:
    """Returns the total length covered by intervals that may overlap."""
    total, reached = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(end - max(begin, reached), 0.0)
        reached = max(reached, end)
    return total
