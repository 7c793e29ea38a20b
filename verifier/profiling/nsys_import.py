"""Reads the SQLite export of Nsight Systems into a `Timeline`.

A raw report carries the environment, command lines and host names of the profiled process and of its parents, so only the tables below are
read, and of `StringIds` only the strings that their rows name. Tables and columns differ by version and are missing where there was nothing to
record: everything is looked up in `sqlite_master` first.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from verifier.profiling.recording import Recording
from verifier.profiling.timeline import Timeline

TABLES = frozenset(
    {
        "StringIds",
        "CUPTI_ACTIVITY_KIND_KERNEL",
        "CUPTI_ACTIVITY_KIND_MEMCPY",
        "CUPTI_ACTIVITY_KIND_MEMSET",
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
        "CUPTI_ACTIVITY_KIND_RUNTIME",
        "NVTX_EVENTS",
        "TARGET_INFO_GPU",
        "TARGET_INFO_CUDA_DEVICE",
        "META_DATA_EXPORT",
        "DIAGNOSTIC_EVENT",
    }
)
COPY_KINDS = {1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH", 10: "PtoP"}
SYNC_TYPES = {1: "Event sync", 2: "Stream wait", 3: "Stream sync", 4: "Context sync"}
MEMORY_KINDS = {0: "pageable", 1: "pinned", 2: "device", 3: "array", 4: "managed", 5: "device static", 6: "managed static"}
NVTX_RANGES = (59, 60, 70, 71)  # push/pop and start/end ranges, of a process and of its text API
NVTX_MARKS = (34, 65)
NO_STREAM = 0xFFFFFFFF
_VERSION_SUFFIX = re.compile(r"_v\d+$")  # cudaMalloc_v3020: the version of the interface, noise to a reader
_PATH = re.compile(r"(?:[A-Za-z]:)?[/\\][^\s'\",;]+")


class ImportProblem(ValueError):
    """The file is no SQLite export of Nsight Systems that can be read; the message says why."""


def import_nsys(path: Path) -> tuple[Timeline, str]:
    """The timeline of everything in the export, and the profiler's version ("" where it does not say).

    Raises `ImportProblem` where the file is damaged, is no SQLite database, or is no Nsight Systems export.
    """
    try:
        # uri with immutable: no lock, no journal beside the file, nothing in it is run.
        with sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True) as database:
            for pragma in ("trusted_schema=OFF", "cell_size_check=ON", "mmap_size=0", "query_only=ON"):
                database.execute(f"PRAGMA {pragma}")
            database.text_factory = lambda raw: raw.decode("utf-8", "replace")
            reader = _Reader(database)
            recording = reader.read()
        database.close()
    except (sqlite3.Error, OverflowError) as error:
        raise ImportProblem(f"the Nsight Systems export cannot be read: {error}") from None
    return recording.timeline(), reader.version


class _Reader:
    def __init__(self, database: sqlite3.Connection):
        self.database = database
        self.columns: dict[str, set[str]] = {}
        for name, sql in database.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall():
            if name in TABLES and not (sql or "").lstrip().upper().startswith("CREATE VIRTUAL"):
                self.columns[name] = {row[1] for row in database.execute(f'PRAGMA table_info("{name}")')}
        if "StringIds" not in self.columns and "META_DATA_EXPORT" not in self.columns:
            raise ImportProblem("this is not an Nsight Systems export: it has neither StringIds nor META_DATA_EXPORT")
        meta = dict(self.rows("META_DATA_EXPORT", "name", "value"))
        self.version = str(meta.get("EXPORT_PRODUCT_VERSION") or meta.get("EXPORT_SCHEMA_VERSION") or "")
        self.strings: dict[int, str] = {}
        self.gpus: dict[int, str] = {}

    def rows(self, table: str, *wanted: str) -> Iterator[tuple[Any, ...]]:
        """The wanted columns of a table; a column that this version lacks is null, a table that is missing has no rows."""
        have = self.columns.get(table)
        if not have:
            return iter(())
        listed = ", ".join(f'"{name}"' if name in have else "NULL" for name in wanted)
        return iter(self.database.execute(f'SELECT {listed} FROM "{table}"'))

    def text(self, identity: int | None) -> str:
        """One string by its id, looked up only because a row names it."""
        if identity is None or "StringIds" not in self.columns:
            return ""
        if identity not in self.strings:
            found = self.database.execute("SELECT value FROM StringIds WHERE id = ?", (identity,)).fetchone()
            self.strings[identity] = str(found[0]) if found and found[0] is not None else ""
        return self.strings[identity]

    def read(self) -> Recording:
        names = {identity: str(name or "GPU") for identity, name in self.rows("TARGET_INFO_GPU", "id", "name")}
        for cuda, gpu in self.rows("TARGET_INFO_CUDA_DEVICE", "cudaId", "gpuId"):
            self.gpus.setdefault(cuda, names.get(gpu, "GPU"))
        if not self.gpus:
            self.gpus = names
        self.recording = Recording("nsys", next(iter(self.gpus.values()), "GPU"))
        self._kernels()
        self._copies()
        self._graphs()
        self._synchronisations()
        self._api()
        self._nvtx()
        self._diagnostics()
        return self.recording

    def _device_row(self, device: int | None, stream: int | None) -> tuple[str, str, str]:
        name = self.gpus.get(device if device is not None else 0, "GPU")
        group = name if len(self.gpus) <= 1 else f"{name} {device}"
        return ("gpu", f"Stream {stream}" if stream not in (None, NO_STREAM) else "All streams", group)

    def _kernels(self) -> None:
        wanted = (
            *("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "demangledName", "shortName", "mangledName"),
            *("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ", "registersPerThread", "staticSharedMemory", "dynamicSharedMemory"),
            *("localMemoryPerThread", "graphNodeId"),
        )
        for row in self.rows("CUPTI_ACTIVITY_KIND_KERNEL", *wanted):
            start, end, device, stream, correlation, pid, demangled, short, mangled = row[:9]
            detail = {
                "grid": list(row[9:12]),
                "block": list(row[12:15]),
                "registers": row[15],
                "shared_static": row[16] or 0,
                "shared_dynamic": row[17] or 0,
                "local_per_thread": row[18] or 0,
            }
            if row[19]:
                detail["graph_node"] = row[19]
            name = self.text(demangled) or self.text(short) or self.text(mangled) or "kernel"
            self.recording.add(self._device_row(device, stream), "kernel", name, start, end - start, _pair(pid, correlation), detail)

    def _copies(self) -> None:
        copies = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "bytes", "copyKind", "srcKind", "dstKind")
        for start, end, device, stream, correlation, pid, size, kind, source, target in self.rows("CUPTI_ACTIVITY_KIND_MEMCPY", *copies):
            detail = {"bytes": size, "from": MEMORY_KINDS.get(source, ""), "to": MEMORY_KINDS.get(target, "")}
            name = f"Memcpy {COPY_KINDS.get(kind, 'unknown')}"
            self.recording.add(self._device_row(device, stream), "memcpy", name, start, end - start, _pair(pid, correlation), detail)
        sets = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "bytes", "value")
        for start, end, device, stream, correlation, pid, size, value in self.rows("CUPTI_ACTIVITY_KIND_MEMSET", *sets):
            detail = {"bytes": size, "value": value}
            self.recording.add(self._device_row(device, stream), "memset", "Memset", start, end - start, _pair(pid, correlation), detail)

    def _graphs(self) -> None:
        wanted = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "graphId", "graphExecId")
        for start, end, device, stream, correlation, pid, graph, executable in self.rows("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", *wanted):
            detail = {"graph": graph, "graph_exec": executable}
            self.recording.add(self._device_row(device, stream), "graph", f"CUDA graph {graph}", start, end - start, _pair(pid, correlation), detail)

    def _synchronisations(self) -> None:
        wanted = ("start", "end", "correlationId", "globalPid", "syncType", "streamId")
        for start, end, correlation, pid, kind, stream in self.rows("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", *wanted):
            detail = {"stream": stream} if stream not in (None, NO_STREAM) else None
            name = SYNC_TYPES.get(kind, "Sync")
            self.recording.add(("api", "Synchronisation", "CUDA"), "sync", name, start, end - start, _pair(pid, correlation), detail)

    def _api(self) -> None:
        threads: dict[int, str] = {}
        for start, end, thread, correlation, name, result in self.rows(
            "CUPTI_ACTIVITY_KIND_RUNTIME", "start", "end", "globalTid", "correlationId", "nameId", "returnValue"
        ):
            row = threads.setdefault(thread, f"CUDA API, thread {len(threads) + 1}")
            # The low 24 bits are the thread: without them a globalTid is the globalPid that kernels carry.
            pair = _pair((thread or 0) & ~0xFFFFFF, correlation)
            detail = {"returned": result} if result else None
            text = _VERSION_SUFFIX.sub("", self.text(name)) or "CUDA call"
            self.recording.add(("api", row, "CUDA"), "api", text, start, end - start, pair, detail)

    def _nvtx(self) -> None:
        threads: dict[int, str] = {}
        wanted = ("start", "end", "eventType", "text", "textId", "globalTid", "domainId")
        for start, end, kind, text, identity, thread, domain in self.rows("NVTX_EVENTS", *wanted):
            if kind not in NVTX_RANGES and kind not in NVTX_MARKS:
                continue  # names of threads, domains and categories are no events
            row = threads.setdefault(thread, f"NVTX, thread {len(threads) + 1}")
            detail = {"domain": domain} if domain else None
            label = text or self.text(identity) or "(no text)"
            self.recording.add(("nvtx", row, "NVTX"), "nvtx", label, start, (end if end is not None else start) - start, None, detail)

    def _diagnostics(self) -> None:
        for severity, text in self.rows("DIAGNOSTIC_EVENT", "severity", "text"):
            if severity in (2, 3) and text:  # warnings and errors
                self.recording.warnings.append("Nsight Systems: " + _PATH.sub("(path)", str(text))[:300])


def _pair(process: int | None, correlation: int | None) -> tuple[int, int] | None:
    return (process or 0, correlation) if correlation else None


def write_timeline(export: str, target: str) -> None:
    """In a party's sandbox: the export as a timeline, with the profiler's version as the first warning."""
    timeline, version = import_nsys(Path(export))
    timeline.warnings.insert(0, f"version {version}")
    Path(target).write_bytes(timeline.to_bytes())
