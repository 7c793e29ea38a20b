"""Reads the SQLite export of Nsight Systems into a `Timeline`.

A raw report contains the environment, command lines and host names of the profiled process and its parents. Therefore, only the tables of
`nsys_schema` are read and, from `StringIds`, only the strings that their rows reference.
"""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path
from typing import Any

from verifier.profiling.nsight.nsys_schema import Export, ImportProblem
from verifier.profiling.ranges import ROWS, range_kind
from verifier.profiling.recording import Recording
from verifier.profiling.timeline import RowKey, Timeline

COPY_KINDS = {1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH", 10: "PtoP"}
SYNC_TYPES = {1: "Event sync", 2: "Stream wait", 3: "Stream sync", 4: "Context sync"}
MEMORY_KINDS = {0: "pageable", 1: "pinned", 2: "device", 3: "array", 4: "managed", 5: "device static", 6: "managed static"}
NVTX_RANGES = (59, 60, 70, 71)  # push/pop and start/end ranges, from a process or NVTX's text API
NVTX_MARKS = (34, 65)
NO_STREAM = 0xFFFFFFFF
_VERSION_SUFFIX = re.compile(r"_v\d+$")  # the interface version in names such as cudaMalloc_v3020, which readers do not need
# The multiprocessor and memory counters among about sixty; the others (video, display, links) say little about a model.
_COUNTERS = re.compile(r"(?:SMs?|Tensor|Compute Warps|Warps|Unallocated Warps|DRAM|VRAM|HBM|L2|Memory)\b", re.IGNORECASE)
_UNIT = re.compile(r"\s*\[(?P<unit>[^\]]*)\]\s*$")
_PATH = re.compile(r"(?:[A-Za-z]:)?[/\\][^\s'\",;]+")


def import_nsys(path: Path) -> tuple[Timeline, str]:
    """Reads the timeline of the whole export, and the profiler's version ("" if unknown).

    Raises `ImportProblem` if the file is damaged, is not an SQLite database, or is not an Nsight Systems export.
    """
    try:
        # With `immutable`, there is no lock and no journal next to the file, and nothing in the file is executed.
        with sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True) as database:
            for pragma in ("trusted_schema=OFF", "cell_size_check=ON", "mmap_size=0", "query_only=ON"):
                database.execute(f"PRAGMA {pragma}")
            database.text_factory = lambda raw: raw.decode("utf-8", "replace")
            reader = _Reader(Export(database))
            recording = reader.read()
        database.close()
    except (sqlite3.Error, OverflowError) as error:
        raise ImportProblem(f"the Nsight Systems export cannot be read: {error}") from None
    return recording.timeline(), reader.export.product


class _Reader:
    def __init__(self, export: Export):
        self.export = export
        self.gpus: dict[Any, str] = {}

    def read(self) -> Recording:
        self._devices()
        self.recording = Recording("nsys", next(iter(self.gpus.values()), "GPU"))
        self._kernels()
        self._copies()
        self._graphs()
        self._synchronisations()
        self._api()
        self._nvtx()
        self._counters()
        self.recording.warnings += self.export.notes()
        self._diagnostics()
        return self.recording

    def _devices(self) -> None:
        names = {identity: str(name or "GPU") for identity, name in self.export.rows("TARGET_INFO_GPU", "id", "name")}
        for cuda, gpu in self.export.rows("TARGET_INFO_CUDA_DEVICE", "cudaId", "gpuId"):
            self.gpus.setdefault(cuda, names.get(gpu, "GPU"))
        older = {identity: str(name or "GPU") for identity, name in self.export.rows("TARGET_INFO_CUDA_GPU", "deviceId|id", "name")}
        self.gpus = self.gpus or names or older

    def _device_row(self, device: Any, stream: Any) -> RowKey:
        name = self.gpus.get(device if device is not None else 0, "GPU")
        group = name if len(self.gpus) <= 1 else f"{name} {device}"
        return ("gpu", f"Stream {stream}" if stream not in (None, NO_STREAM) else "All streams", group)

    def _kernels(self) -> None:
        wanted = (
            *("deviceId", "streamId", "correlationId", "globalPid", "demangledName|name", "shortName", "mangledName"),
            *("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ", "registersPerThread", "staticSharedMemory", "dynamicSharedMemory"),
            *("localMemoryPerThread", "graphNodeId"),
        )
        for row in self.export.timed("CUPTI_ACTIVITY_KIND_KERNEL", *wanted):
            start, end, device, stream, correlation, pid, demangled, short, mangled = row[:9]
            detail = {
                "grid": row[9:12],
                "block": row[12:15],
                "registers": row[15],
                "shared_static": row[16] or 0,
                "shared_dynamic": row[17] or 0,
                "local_per_thread": row[18] or 0,
            }
            if row[19]:
                detail["graph_node"] = row[19]
            name = self.export.text(demangled) or self.export.text(short) or self.export.text(mangled) or "kernel"
            self.recording.add(self._device_row(device, stream), "kernel", name, start, end - start, _pair(pid, correlation), detail)

    def _copies(self) -> None:
        copies = ("deviceId", "streamId", "correlationId", "globalPid", "bytes", "copyKind", "srcKind", "dstKind")
        for start, end, device, stream, correlation, pid, size, kind, source, target in self.export.timed("CUPTI_ACTIVITY_KIND_MEMCPY", *copies):
            detail = {"bytes": size, "from": MEMORY_KINDS.get(source, ""), "to": MEMORY_KINDS.get(target, "")}
            name = f"Memcpy {COPY_KINDS.get(kind, 'unknown')}"
            self.recording.add(self._device_row(device, stream), "memcpy", name, start, end - start, _pair(pid, correlation), detail)
        sets = ("deviceId", "streamId", "correlationId", "globalPid", "bytes", "value")
        for start, end, device, stream, correlation, pid, size, value in self.export.timed("CUPTI_ACTIVITY_KIND_MEMSET", *sets):
            detail = {"bytes": size, "value": value}
            self.recording.add(self._device_row(device, stream), "memset", "Memset", start, end - start, _pair(pid, correlation), detail)

    def _graphs(self) -> None:
        wanted = ("deviceId", "streamId", "correlationId", "globalPid", "graphId", "graphExecId")
        for start, end, device, stream, correlation, pid, graph, executable in self.export.timed("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", *wanted):
            detail = {"graph": graph, "graph_exec": executable}
            self.recording.add(self._device_row(device, stream), "graph", f"CUDA graph {graph}", start, end - start, _pair(pid, correlation), detail)

    def _synchronisations(self) -> None:
        wanted = ("correlationId", "globalPid", "syncType|deprecatedSyncType", "streamId")
        for start, end, correlation, pid, kind, stream in self.export.timed("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", *wanted):
            detail = {"stream": stream} if stream not in (None, NO_STREAM) else None
            name = SYNC_TYPES.get(kind, "Sync")
            self.recording.add(("api", "Synchronisation", "CUDA"), "sync", name, start, end - start, _pair(pid, correlation), detail)

    def _api(self) -> None:
        threads: dict[Any, str] = {}
        names: dict[Any, str] = {}
        wanted = ("globalTid", "correlationId", "nameId|name", "returnValue")
        for start, end, thread, correlation, name, result in self.export.timed("CUPTI_ACTIVITY_KIND_RUNTIME", *wanted):
            row = threads.setdefault(thread, f"CUDA API, thread {len(threads) + 1}")
            # The low 24 bits are the thread. Without them, a globalTid equals the globalPid that kernels have.
            pair = _pair(thread & ~0xFFFFFF if isinstance(thread, int) else 0, correlation)
            detail = {"returned": result} if result else None
            if name not in names:
                names[name] = _VERSION_SUFFIX.sub("", self.export.text(name)) or "CUDA call"
            self.recording.add(("api", row, "CUDA"), "api", names[name], start, end - start, pair, detail)

    def _nvtx(self) -> None:
        threads: dict[Any, int] = {}
        wanted = ("eventType", "text", "textId", "globalTid", "domainId")
        left_open = 0
        for start, end, kind, text, identity, thread, domain in self.export.timed("NVTX_EVENTS", *wanted, open_ended=True):
            if kind not in NVTX_RANGES and kind not in NVTX_MARKS:
                continue  # names of threads, domains and categories are not events
            number = threads.setdefault(thread, len(threads) + 1)
            what, label = range_kind(str(text or self.export.text(identity) or "(no text)"))
            row: RowKey = ("nvtx", f"{ROWS.get(what, 'NVTX')}, thread {number}", "NVTX")
            if end is None and kind in NVTX_RANGES:
                left_open += 1
                end = max(start, self.recording.end)  # the range was open until the recording ended
            detail = {"domain": domain} if domain else None
            self.recording.add(row, what, label, start, (start if end is None else end) - start, None, detail)
        if left_open:
            self.recording.warnings.append(f"{left_open:,} NVTX ranges were never closed: they are drawn to the end of the recording.")

    def _counters(self) -> None:
        """Reads the sampled counters (`nsys profile --gpu-metrics-devices`). The low byte of a type id is the GPU."""
        chosen: dict[tuple[Any, Any], tuple[str, str, str]] = {}
        left_out = set()
        for kind, metric, text in self.export.rows("TARGET_INFO_GPU_METRICS", "typeId", "metricId", "metricName"):
            name = self.export.text(text)
            unit = _UNIT.search(name)
            if not _COUNTERS.match(name):
                left_out.add(name)
                continue
            group = self._device_row(kind & 0xFF if isinstance(kind, int) else 0, None)[2]
            said = unit["unit"] if unit else ""
            chosen[(kind, metric)] = (group, _UNIT.sub("", name), "%" if "%" in said else said)
        for kind, metric, time, value in self.export.rows("GPU_METRICS", "typeId", "metricId", "timestamp|start", "value"):
            if (kind, metric) in chosen and isinstance(time, int | float) and isinstance(value, int | float) and time >= 0:
                self.recording.sample(chosen[(kind, metric)], time, value)
        if chosen and left_out:
            self.recording.warnings.append(f"{len(left_out)} hardware counters that aren't of the multiprocessors or memory are left out.")

    def _diagnostics(self) -> None:
        for severity, text in self.export.rows("DIAGNOSTIC_EVENT", "severity", "text"):
            if severity in (2, 3) and text:  # warnings and errors
                self.recording.warnings.append("Nsight Systems: " + _PATH.sub("(path)", str(text))[:300])


def _pair(process: Any, correlation: Any) -> tuple[int, int] | None:
    return (process or 0, correlation) if isinstance(correlation, int) and correlation > 0 else None


def write_timeline(export: str, target: str) -> None:
    """Writes the export as a timeline inside a party's sandbox, with the profiler's version as the first warning."""
    timeline, version = import_nsys(Path(export))
    timeline.warnings.insert(0, f"version {version}")
    Path(target).write_bytes(timeline.to_bytes())
