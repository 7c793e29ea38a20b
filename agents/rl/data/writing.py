"""Writes data sets to disk, as Parquet if pyarrow is installed and as JSON lines otherwise. Each split is one file, next to `manifest.json` and
`leaks.json`."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal

from agents.rl.data.rows import DataRow

Format = Literal["parquet", "jsonl"]
MISSING = "Parquet needs the package pyarrow: `pip install -r requirements-rl.txt`, or take --format jsonl"


class CannotWrite(RuntimeError):
    """Raised if the data set cannot be written. The message says why and what to do."""


def check(format_: Format) -> None:
    """Raises `CannotWrite` if the package for the format is missing. Call this before the work starts."""
    if format_ == "parquet":
        _pyarrow()


def write_rows(folder: Path, name: str, rows: Sequence[DataRow], format_: Format, about: Mapping[str, Any]) -> Path:
    """Writes `folder/name.parquet` or `.jsonl` atomically. `about` goes into the Parquet file's metadata."""
    path = folder / f"{name}.{format_}"
    draft = path.with_suffix(path.suffix + ".part")
    if format_ == "parquet":
        _write_parquet(draft, rows, about)
    else:
        draft.write_text("".join(json.dumps(row.as_dict(), ensure_ascii=False, allow_nan=False) + "\n" for row in rows), encoding="utf-8")
    os.replace(draft, path)
    return path


def read_rows(path: Path) -> list[DataRow]:
    """Reads the rows of a file. Raises `CannotWrite` for Parquet without pyarrow, and `ValueError` if the file contains something other than rows."""
    if path.suffix == ".parquet":
        _, parquet = _pyarrow()
        found = parquet.read_table(path).to_pylist()
    else:
        found = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    try:
        return [DataRow(**row) for row in found]
    except TypeError as error:
        raise ValueError(f"{path} is not a data set of this version: {error}") from None


def write_json(path: Path, value: Any) -> None:
    draft = path.with_suffix(".part")
    draft.write_text(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    os.replace(draft, path)


def _write_parquet(path: Path, rows: Sequence[DataRow], about: Mapping[str, Any]) -> None:
    arrow, parquet = _pyarrow()
    kinds = {"str": arrow.string(), "float | None": arrow.float64(), "int | None": arrow.int64()}
    schema = arrow.schema([(one.name, kinds.get(str(one.type), arrow.string())) for one in fields(DataRow)])
    schema = schema.with_metadata({"stitchwork": json.dumps(about)})
    parquet.write_table(arrow.Table.from_pylist([row.as_dict() for row in rows], schema=schema), path, compression="zstd")


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise CannotWrite(MISSING) from None
    return pyarrow, pyarrow.parquet
