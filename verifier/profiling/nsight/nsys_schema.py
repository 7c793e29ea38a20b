"""Describes what an Nsight Systems export (SQLite) may contain, whichever version wrote it. Tables exist only if there was something to record,
columns vary between versions, missing values appear as defaults (-1, 0, ''), and no constraint can be relied on. Everything is therefore looked up
first, and anything missing is reported by name.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

NEWEST_MAJOR = 3  # of EXPORT_SCHEMA_VERSION; Nsight Systems 2025.3 writes 3.20

# Only these are read, because an export also contains the environment, command lines and host names of the profiled process and its parents.
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
        "TARGET_INFO_CUDA_GPU",  # before mid-2021
        "TARGET_INFO_CUDA_DEVICE",
        "META_DATA_EXPORT",
        "DIAGNOSTIC_EVENT",
        "GPU_METRICS",
        "TARGET_INFO_GPU_METRICS",
    }
)
# The features that are unavailable without each table.
LACK = {
    "CUPTI_ACTIVITY_KIND_KERNEL": "no kernels are shown; the program launched none, or CUDA was not traced (nsys profile -t cuda)",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "no CUDA calls are shown; launch latencies and the causes of idle time are unknown",
    "NVTX_EVENTS": "no ranges are shown; calls of the model cannot be distinguished",
    "StringIds": "kernels and calls have no names",
}
# Columns without which a table's rows cannot be placed, and columns whose absence limits what is shown.
NEEDED = ("start", "end")
MISSED = {
    ("CUPTI_ACTIVITY_KIND_KERNEL", "correlationId"): "kernels cannot be tied to their launches",
    ("CUPTI_ACTIVITY_KIND_KERNEL", "streamId"): "kernels of all streams share one row",
    ("CUPTI_ACTIVITY_KIND_KERNEL", "deviceId"): "kernels of all GPUs share their rows",
    ("CUPTI_ACTIVITY_KIND_RUNTIME", "correlationId"): "kernels cannot be tied to their launches",
    ("CUPTI_ACTIVITY_KIND_RUNTIME", "globalTid"): "calls of all threads share one row",
    ("CUPTI_ACTIVITY_KIND_RUNTIME", "nameId"): "CUDA calls have no names",
}


class ImportProblem(ValueError):
    """Raised if a file is not a readable SQLite export of Nsight Systems; the message gives the reason."""


class Export:
    """The readable tables of one export. Rows that cannot be placed in time are only counted."""

    def __init__(self, database: sqlite3.Connection):
        self.database = database
        self.columns: dict[str, set[str]] = {}
        for name, sql in database.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall():
            if name in TABLES and not (sql or "").lstrip().upper().startswith("CREATE VIRTUAL"):
                self.columns[name] = {row[1] for row in database.execute(f'PRAGMA table_info("{name}")')}
        if "StringIds" not in self.columns and "META_DATA_EXPORT" not in self.columns:
            raise ImportProblem("this is not an Nsight Systems export: it has neither StringIds nor META_DATA_EXPORT")
        self.meta = {str(name): str(value) for name, value in self.rows("META_DATA_EXPORT", "name", "value")}
        self.seen: dict[str, int] = {}
        self.misplaced: dict[str, int] = {}
        self._strings: dict[int, str] = {}

    @property
    def product(self) -> str:
        return self.meta.get("EXPORT_PRODUCT_VERSION") or self.schema

    @property
    def schema(self) -> str:
        return self.meta.get("EXPORT_SCHEMA_VERSION", "")

    def rows(self, table: str, *wanted: str) -> Iterator[tuple[Any, ...]]:
        """Yields the wanted columns of a table. "a|b" stands for the first of these columns that the table has. A missing column is null, and a
        missing table has no rows."""
        have = self.columns.get(table)
        if not have:
            return iter(())
        chosen = [next((name for name in names.split("|") if name in have), None) for names in wanted]
        listed = ", ".join(f'"{name}"' if name else "NULL" for name in chosen)
        return iter(self.database.execute(f'SELECT {listed} FROM "{table}"'))

    def timed(self, table: str, *wanted: str, open_ended: bool = False) -> Iterator[tuple[Any, ...]]:
        """Yields rows (start, end, *wanted) with numeric start <= end. With `open_ended`, end is null if the row has none."""
        if not self.columns.get(table) or not set(NEEDED) <= self.columns[table]:
            return
        for row in self.rows(table, *NEEDED, *wanted):
            start, end = row[0], row[1]
            self.seen[table] = self.seen.get(table, 0) + 1
            if not isinstance(start, int | float) or start < 0:
                self.misplaced[table] = self.misplaced.get(table, 0) + 1
            elif isinstance(end, int | float) and end >= start:
                yield row
            elif open_ended:
                yield (start, None, *row[2:])
            else:
                self.misplaced[table] = self.misplaced.get(table, 0) + 1

    def text(self, identity: Any) -> str:
        """Returns one string by its id. Only strings that a row references are looked up. Older exports contain the text itself."""
        if isinstance(identity, str):
            return identity
        if not isinstance(identity, int) or not {"id", "value"} <= self.columns.get("StringIds", set()):
            return ""
        if identity not in self._strings:
            found = self.database.execute("SELECT value FROM StringIds WHERE id = ?", (identity,)).fetchone()
            self._strings[identity] = str(found[0]) if found and found[0] is not None else ""
        return self._strings[identity]

    def notes(self) -> list[str]:
        """Describes what this export lacks and what was left out. Call it only after everything has been read."""
        found = []
        major = self.schema.split(".")[0]
        if major.isdigit() and int(major) > NEWEST_MAJOR:
            found.append(f"The export has schema version {self.schema}, newer than the {NEWEST_MAJOR}.x that is known: its additions are not shown.")
        graphs = self.seen.get("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", 0) > 0  # graphs recorded as a whole contain the kernels
        for table, lack in LACK.items():
            if graphs and table == "CUPTI_ACTIVITY_KIND_KERNEL":
                continue
            if table not in self.columns:
                found.append(f"The export has no table {table}: {lack}.")
            elif table == "StringIds" and self.columns[table] and not self.database.execute("SELECT 1 FROM StringIds LIMIT 1").fetchone():
                found.append(f"The table StringIds is empty: {lack}.")
            elif table != "StringIds" and set(NEEDED) <= self.columns[table] and not self.seen.get(table):
                found.append(f"The table {table} is empty: {lack}.")
        version = f" (schema version {self.schema})" if self.schema else ""
        for table, have in sorted(self.columns.items()):
            if (table.startswith("CUPTI_") or table == "NVTX_EVENTS") and (absent := [name for name in NEEDED if name not in have]):
                found.append(f"{table}{version} has no column {' and no '.join(absent)}: its rows cannot be placed in time and are left out.")
        for (table, column), effect in MISSED.items():
            if self.seen.get(table) and column not in self.columns[table]:
                found.append(f"{table}{version} has no column {column}: {effect}.")
        for table, rows in self.misplaced.items():
            found.append(f"{rows:,} of {self.seen[table]:,} rows of {table} have no valid times and are left out.")
        return found
