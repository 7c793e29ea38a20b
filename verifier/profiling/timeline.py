"""The columnar timeline format that the page draws, for data from Nsight Systems, CUPTI or torch.profiler on the CPU.

File: magic ``STWTL1\\n``, then a little-endian u32 with the length of a UTF-8 JSON header, the header, padding to 8 bytes, then the columns in header
order, each padded to 8 bytes. Times are nanoseconds from the origin; rows are sorted by (row, start).

Header: ``{"version": 1, "tool", "device", "span_ns", "events", "columns": [{"name", "dtype", "offset", "length"}], "rows": [{"name",
"kind", "group"}], "names": [...], "kinds": [...], "details": {...}, "warnings": [...], "truncated": {"kept", "of"} or null, "own": [...] or
null}`` where ``own`` lists the names (by index) of the program's own kernels, and is null if they have not been identified.

Columns: ``start`` f64, ``duration`` f64, ``name`` u32 (into names), ``row`` u16, ``kind`` u8 (into kinds), ``correlation`` u32 (0: none; a
launch and what it launched share it), ``depth`` u16 (nesting within the row), ``detail`` u32 (0, or 1 + index into details["table"]).

Counters that were sampled along with the events: header ``"counters": [{"name", "group", "unit", "offset", "length"}]``. At each offset, which is
relative to the start of the columns, there are ``length`` f8 times, followed by ``length`` f4 values.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

MAGIC = b"STWTL1\n"
KINDS = ("kernel", "memcpy", "memset", "sync", "api", "nvtx", "operator", "own", "graph", "module")  # append only: stored timelines index it
COLUMNS = (
    ("start", "<f8"),
    ("duration", "<f8"),
    ("name", "<u4"),
    ("row", "<u2"),
    ("kind", "u1"),
    ("correlation", "<u4"),
    ("depth", "<u2"),
    ("detail", "<u4"),
)
RowKind = Literal["gpu", "api", "nvtx", "thread"]
RowKey = tuple[RowKind, str, str]  # kind, name, group


@dataclass
class Row:
    name: str  # "Stream 7", "CUDA API", "NVTX", "Thread 1"
    kind: RowKind
    group: str = ""  # "NVIDIA H200", "Process", ...


@dataclass
class Counter:
    """Samples of one hardware counter in time order: nanoseconds on the events' clock, and values in `unit`."""

    name: str  # "SMs Active"
    group: str  # the GPU's name, as used in rows
    unit: str  # "%", "MHz" or ""
    times: np.ndarray
    values: np.ndarray

    def between(self, begin: float, end: float) -> Counter:
        keep = (self.times >= begin) & (self.times <= end)
        return Counter(self.name, self.group, self.unit, self.times[keep], self.values[keep])


@dataclass
class Timeline:
    """Columns of equal length, and the tables that they index."""

    tool: str
    device: str
    rows: list[Row]
    names: list[str]
    columns: dict[str, np.ndarray]
    details: list[dict[str, Any]] = field(default_factory=list)  # an event's grid, block, registers, bytes, ...
    warnings: list[str] = field(default_factory=list)
    truncated: tuple[int, int] | None = None  # (kept, of)
    own: frozenset[str] | None = None  # names of the program's own kernels; None if they have not been identified
    counters: list[Counter] = field(default_factory=list)

    @property
    def events(self) -> int:
        return int(len(self.columns["start"]))

    def to_bytes(self) -> bytes:
        order = np.lexsort((self.columns["start"], self.columns["row"]))
        start = self.columns["start"]
        origin = float(start.min()) if len(start) else 0.0
        parts: list[bytes] = []
        described = []
        offset = 0
        for name, dtype in COLUMNS:
            column = self.columns[name][order]
            if name == "start":
                column = column - origin
            data = np.ascontiguousarray(column, dtype=dtype).tobytes()
            described.append({"name": name, "dtype": dtype.lstrip("<"), "offset": offset, "length": int(len(column))})
            data += b"\0" * (-len(data) % 8)
            parts.append(data)
            offset += len(data)
        span = float((start + self.columns["duration"]).max() - origin) if len(start) else 0.0
        counters = []
        for counter in self.counters:
            kept = counter.between(origin, origin + span)
            data = np.asarray(kept.times - origin, dtype="<f8").tobytes() + np.asarray(kept.values, dtype="<f4").tobytes()
            counters.append({"name": kept.name, "group": kept.group, "unit": kept.unit, "offset": offset, "length": int(len(kept.times))})
            data += b"\0" * (-len(data) % 8)
            parts.append(data)
            offset += len(data)
        header = json.dumps(
            {
                "version": 1,
                "tool": self.tool,
                "device": self.device,
                "span_ns": span,
                "events": self.events,
                "columns": described,
                "rows": [vars(row) for row in self.rows],
                "names": self.names,
                "kinds": list(KINDS),
                "details": {"table": self.details},
                "warnings": self.warnings,
                "truncated": {"kept": self.truncated[0], "of": self.truncated[1]} if self.truncated else None,
                "own": None if self.own is None else [index for index, name in enumerate(self.names) if name in self.own],
                "counters": counters,
            }
        ).encode()
        head = MAGIC + struct.pack("<I", len(header)) + header
        return head + b"\0" * (-len(head) % 8) + b"".join(parts)

    def crop(self, begin: float, end: float) -> Timeline:
        """Keeps only the events that overlap [begin, end] nanoseconds, with the rows, names and details that they use."""
        start, duration = self.columns["start"], self.columns["duration"]
        keep = (start + duration >= begin) & (start <= end)
        columns = {name: column[keep] for name, column in self.columns.items()}
        rows, columns["row"] = np.unique(columns["row"], return_inverse=True)
        names, columns["name"] = np.unique(columns["name"], return_inverse=True)
        used = np.unique(columns["detail"][columns["detail"] > 0])
        columns["detail"] = np.where(columns["detail"] > 0, np.searchsorted(used, columns["detail"]) + 1, 0)
        return Timeline(
            tool=self.tool,
            device=self.device,
            rows=[self.rows[i] for i in rows.tolist()],
            names=[self.names[i] for i in names.tolist()],
            columns={name: columns[name].astype(dtype) for name, dtype in COLUMNS},
            details=[self.details[i - 1] for i in used.tolist()],
            warnings=list(self.warnings),
            truncated=self.truncated,
            own=self.own,
            counters=[counter.between(begin, end) for counter in self.counters],
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Timeline:
        """Reads a timeline. Raises `ValueError` if the bytes are not a timeline or are truncated."""
        if data[: len(MAGIC)] != MAGIC or len(data) < len(MAGIC) + 4:
            raise ValueError("not a Stitchwork timeline")
        (length,) = struct.unpack_from("<I", data, len(MAGIC))
        begin = len(MAGIC) + 4
        try:
            header = json.loads(data[begin : begin + length])
            base = begin + length + (-(begin + length) % 8)
            columns = {}
            for column in header["columns"]:
                dtype = dict(COLUMNS)[column["name"]]
                columns[column["name"]] = np.frombuffer(data, dtype=dtype, count=column["length"], offset=base + column["offset"]).copy()
            counters = [_counter(data, base, described) for described in header.get("counters", [])]
        except (KeyError, ValueError, TypeError) as error:
            raise ValueError(f"the timeline is damaged: {error}") from None
        truncated, own = header.get("truncated"), header.get("own")
        return cls(
            tool=header["tool"],
            device=header["device"],
            rows=[Row(**row) for row in header["rows"]],
            names=header["names"],
            columns=columns,
            details=header["details"]["table"],
            warnings=header["warnings"],
            truncated=(truncated["kept"], truncated["of"]) if truncated else None,
            own=None if own is None else frozenset(header["names"][index] for index in own),
            counters=counters,
        )


def _counter(data: bytes, base: int, described: dict[str, Any]) -> Counter:
    count, begin = described["length"], base + described["offset"]
    times = np.frombuffer(data, dtype="<f8", count=count, offset=begin).copy()
    values = np.frombuffer(data, dtype="<f4", count=count, offset=begin + 8 * count).copy()
    return Counter(described["name"], described["group"], described["unit"], times, values)
