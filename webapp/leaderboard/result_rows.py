"""Reads the rows of `exports.ResultRow` straight from the database and streams them piece by piece, even if there are a hundred thousand.

There are few setups, entries and teams, so they are read once and looked up for every row.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator
from io import StringIO
from itertools import chain, islice
from typing import Any

from django.db.models import QuerySet

from webapp.accounts.models import Team
from webapp.leaderboard.entries import named
from webapp.leaderboard.exports import Measured, ResultRow, ResultsFile, harmless
from webapp.leaderboard.models import Entry, Result, Setup
from webapp.leaderboard.recording import BASELINES

CHUNK = 2000  # rows that the server-side cursor returns per fetch
PIECE = 500  # rows per piece of a file
# Maps a field of ResultRow to its path from a result. `rows` looks up or computes all other fields.
COLUMNS = {
    "run": "run_id", "title": "run__title", "task": "task__name", "task_id": "task_id", "task_sha": "task__sha", "confirmed": "confirmed",
    "verdict": "verdict", "visibility": "visibility", "outcome": "provenance__outcome", "reason": "provenance__reason", "candidate": "candidate",
    "verification": "verification_id", "program_sha": "provenance__program_sha", "report_sha": "provenance__report_sha",
    "program_class": "program_class", "own_share": "provenance__own_share", "flags": "provenance__flags", "speedup_vs_eager": "eager",
    "speedup_vs_eager_low": "eager_low", "speedup_vs_eager_high": "eager_high", "best_baseline": "provenance__best_baseline",
    "speedup_vs_best": "best", "speedup_vs_best_low": "best_low", "speedup_vs_best_high": "best_high", "baselines": "provenance__comparisons",
    "program_ms": "program_ms", "floor_fraction": "provenance__floor_fraction", "peak_bytes": "provenance__peak_bytes", "dollars": "dollars",
    "tokens": "tokens", "calls": "calls", "seconds": "seconds", "seconds_to_first_faster": "faster_after", "finished_at": "finished_at",
}  # fmt: skip
APART = ("team_id", "entry_id", "setup_id", "team_runs", "provenance__environment")
ENVIRONMENT = ("torch", "cuda", "driver", "compiler", "python", "threads")
OF_SETUP = ("device_kind", "device_model", "device_name", "precision", "mode", "clock")
OF_ENTRY = ("workflow", "planner", "coder", "judge", "language")


def rows(results: QuerySet[Result]) -> Iterator[dict[str, Any]]:
    """Yield the fields of `ResultRow`, in order, as JSON values."""
    # Read tuples, because five model objects per row would take four times as long. Open the cursor before reading the lookup tables, so that no row
    # refers to a setup or an entry that is added after the tables were read.
    stream = results.values_list(*COLUMNS.values(), *APART).iterator(chunk_size=CHUNK)
    first = list(islice(stream, 1))
    setups = {setup.pop("pk"): setup for setup in Setup.objects.values("pk", *OF_SETUP)}
    entries = {
        entry.pk: {"entry": named(entry).short, **{name: getattr(entry, name) for name in OF_ENTRY}} for entry in Entry.objects.select_related("team")
    }
    teams = dict(Team.objects.values_list("pk", "name"))
    order = list(ResultRow.model_fields)
    for values in chain(first, stream):
        row = dict(zip(COLUMNS, values, strict=False))
        team, entry, setup, counting, environment = values[len(COLUMNS) :]
        environment = environment or {}
        row |= {"team": teams.get(team, ""), "counts": counting is not None, **entries[entry], **setups[setup]}
        row |= {name: environment.get(name) for name in ENVIRONMENT}
        row |= {"run": str(row["run"]), "task_id": str(row["task_id"]), "report_version": environment.get("report")}
        row["verification"] = str(row["verification"]) if row["verification"] else None
        row["finished_at"] = row["finished_at"].isoformat()
        row["baselines"] = {name: {field: found[field] for field in Measured.model_fields} for name, found in (row["baselines"] or {}).items()}
        yield {name: row[name] for name in order}


def as_json(results: QuerySet[Result]) -> Iterator[bytes]:
    """Yield the text of a `ResultsFile` in pieces, one line per result."""
    head = {name: field.default for name, field in ResultsFile.model_fields.items() if name != "results"}
    yield f'{json.dumps(head)[:-1]}, "results": [\n'.encode()
    before = ""
    for piece in pieces(rows(results)):
        yield (before + ",\n".join(json.dumps(row, ensure_ascii=False) for row in piece)).encode()
        before = ",\n"
    yield b"\n]}\n"


def as_csv(results: QuerySet[Result]) -> Iterator[bytes]:
    """Yield the CSV text, with columns for each baseline: `eager_ms`, `speedup_vs_compile`, `speedup_vs_compile_low`, ..."""
    others = [name for name in BASELINES if name != "eager"]
    spread = [f"speedup_vs_{name}{end}" for name in others for end in ("", "_low", "_high")] + [f"{name}_ms" for name in BASELINES]
    columns = [name for name in ResultRow.model_fields if name != "baselines"] + spread
    yield ",".join(columns).encode() + b"\r\n"
    for piece in pieces(rows(results)):
        text = StringIO()
        writer = csv.DictWriter(text, columns, extrasaction="ignore")
        writer.writerows({name: harmless(value) for name, value in flat(row).items()} for row in piece)
        yield text.getvalue().encode()


def flat(row: dict[str, Any]) -> dict[str, Any]:
    plain = {**row, "flags": " ".join(row["flags"] or [])}
    for name, found in plain.pop("baselines").items():
        plain[f"{name}_ms"] = found["baseline_ms"]
        if name != "eager":
            plain |= {f"speedup_vs_{name}": found["ratio"], f"speedup_vs_{name}_low": found["low"], f"speedup_vs_{name}_high": found["high"]}
    return plain


def pieces(found: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    remaining = iter(found)
    while piece := list(islice(remaining, PIECE)):
        yield piece
