"""Stores the counted rows as arrays, because a ranking processes ten thousand rows and creating an object for each would take most of the time.

The rows are read with a binary COPY. Every column has a fixed width and is never null, so all rows can be read as one array.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
import psycopg
from django.db import connection

from webapp.leaderboard.columns import SOURCES

CLASSES = ("", "custom", "mixed", "orchestration")  # program classes; the arrays hold indices into this tuple
RATIOS = ("eager", "eager_low", "eager_high", "best", "best_low", "best_high", "compile", "autotune", "graph")
# For each column: name, SQL expression (the caller supplies `runs`) and type on the wire.
READ = {
    "entry": ("entry_id", ">i8"),
    "subject": ("subject_id", ">i8"),
    "result": ("id", ">i8"),
    "confirmed": ("confirmed", "?"),
    "flagged": ("flagged", "?"),
    "kind": (f"coalesce(array_position(ARRAY{list(CLASSES)}::text[], program_class::text), 1) - 1", ">i4"),
    **{name: (f"coalesce({name}::float8, 'NaN')", ">f8") for name in (*RATIOS, *SOURCES)},
}
WIRE = np.dtype(
    [("fields", ">i2")] + [part for name, (_, kind) in [*READ.items(), ("runs", ("", ">i4"))] for part in ((f"{name} bytes", ">i4"), (name, kind))]
)
HEAD, TAIL = 19, 2  # sizes in bytes: the header (signature, flags and an empty extension) and the trailer (a field count of -1)


class Counted(NamedTuple):
    """One row that counts towards the ranking. Figures that were not measured are None."""

    result: int
    confirmed: bool
    program_class: str
    eager: float | None
    eager_low: float | None
    eager_high: float | None
    best: float | None
    best_low: float | None
    best_high: float | None
    dollars: float
    runs: int


@dataclass(frozen=True)
class Columns:
    """The rows that count towards the ranking, stored by column. `runs` is the number of runs behind each median. Figures that were not measured are
    NaN."""

    entry: np.ndarray
    subject: np.ndarray
    result: np.ndarray
    confirmed: np.ndarray
    flagged: np.ndarray
    kind: np.ndarray
    eager: np.ndarray
    eager_low: np.ndarray
    eager_high: np.ndarray
    best: np.ndarray
    best_low: np.ndarray
    best_high: np.ndarray
    compile: np.ndarray
    autotune: np.ndarray
    graph: np.ndarray
    runs: np.ndarray
    costs: Mapping[str, np.ndarray]  # keyed by column of `Result`

    def __len__(self) -> int:
        return len(self.entry)

    def taken(self, which: np.ndarray, **changed: np.ndarray) -> Columns:
        """Return the rows selected by a mask or by their positions."""
        plain = {field.name: getattr(self, field.name)[which] for field in fields(self) if field.name != "costs"}
        return Columns(**(plain | changed), costs={name: values[which] for name, values in self.costs.items()})

    def row(self, at: int) -> Counted:
        def figure(name: str) -> float | None:
            value = float(getattr(self, name)[at])
            return None if np.isnan(value) else value

        return Counted(
            int(self.result[at]), bool(self.confirmed[at]), CLASSES[self.kind[at]],
            eager=figure("eager"), eager_low=figure("eager_low"), eager_high=figure("eager_high"),
            best=figure("best"), best_low=figure("best_low"), best_high=figure("best_high"),
            dollars=float(self.costs["dollars"][at]), runs=int(self.runs[at]),
        )  # fmt: skip

    def of_class(self, wanted: Sequence[str]) -> np.ndarray:
        """Return a mask of the confirmed rows in one of these classes."""
        return self.confirmed & np.isin(self.kind, [CLASSES.index(name) for name in wanted])


def select(runs: str, condition: str) -> str:
    """Return the query that selects the columns; `runs` names the column with the number of runs."""
    return f"SELECT {', '.join(sql for sql, _ in READ.values())}, {runs} FROM leaderboard_result WHERE {condition}"


def copied(query: str, given: dict[str, Any]) -> Columns:
    """Fetch all rows of a query built by `select` in a single call."""
    connection.ensure_connection()
    with psycopg.ClientCursor(connection.connection) as cursor, cursor.copy(f"COPY ({query}) TO STDOUT (FORMAT BINARY)", given) as copy:
        data = b"".join(bytes(block) for block in copy)
    return unpacked(data)


def unpacked(data: bytes) -> Columns:
    """Unpack binary COPY data. Raises ValueError if a row has the wrong width, which means that a column is null or has a different type."""
    rows = np.frombuffer(data[HEAD:-TAIL], WIRE)
    names = [*READ, "runs"]
    if any((rows[f"{name} bytes"] != rows.dtype[name].itemsize).any() for name in names):
        raise ValueError("a row of the leaderboard is not as wide as its columns")
    found = {name: rows[name].astype(rows.dtype[name].newbyteorder("=")) for name in names}
    costs = {name: found.pop(name) for name in SOURCES}
    return Columns(**found, costs=costs)
