"""Turns runs into data sets: rows, splits, the files and a manifest, and the leak report that decides whether anything is written."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agents.rl.data.leaks import LeakReport, leaks, split
from agents.rl.data.rows import DataRow, RunTrace, rows_of
from agents.rl.data.scrub import Scrubber
from agents.rl.data.writing import Format, write_json, write_rows

VERSION = 1
MOST_CHEATS = 0.05  # maximum share of cheats in the rows for supervised training
TRAIN = "train"

Say = Callable[[str], None]


class LeaksFound(RuntimeError):
    """Raised if only the report was written. The message contains its path."""


@dataclass
class Collected:
    rows: list[DataRow] = field(default_factory=list)
    runs: int = 0
    skipped: Counter[str] = field(default_factory=Counter)  # reasons for leaving rows out, without candidate numbers
    unusable: dict[str, str] = field(default_factory=dict)  # reasons why runs are unusable, keyed by the runs' names


def collect(traces: Iterable[tuple[str, RunTrace | str]], scrubber: Scrubber, say: Say = lambda line: None) -> Collected:
    """Returns the rows of all runs without duplicates. Rows with the same program for the same task, derived from the same parent, count as one."""
    found, known = Collected(), set()
    for name, trace in traces:
        if isinstance(trace, str):
            found.unusable[name] = scrubber.text(trace)
            continue

        def skip(why: str) -> None:
            found.skipped[why.partition(": ")[2] or " ".join(w for w in why.split() if not w.isdigit())] += 1

        try:
            rows = list(rows_of(trace, scrubber, skip))
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            found.unusable[name] = f"it lacks an artefact, or contains a different one from the one that its events name ({type(error).__name__})"
            continue
        found.runs += 1
        new = [row for row in rows if (row.skill, row.task_sha, row.program_sha, row.before_sha) not in known]
        known |= {(row.skill, row.task_sha, row.program_sha, row.before_sha) for row in new}
        found.rows += new
        say(f"{name}: {len(new)} rows")
    return found


def with_splits(rows: Sequence[DataRow], seed: int, fixed: Mapping[str, str]) -> list[DataRow]:
    given = split({row.task_sha: row.task for row in rows}, seed, fixed)
    return [replace(row, split=given[row.task_sha]) for row in rows]


def leak_report(rows: Sequence[DataRow], held_out: Mapping[str, str]) -> LeakReport:
    """Returns the similarities between the training rows and both the other splits and `held_out`, which maps names to sources."""
    train = {row.task_sha: row.task for row in rows if row.split == TRAIN}
    others = {f"{row.split}:{row.task_sha}": row.task for row in rows if row.split != TRAIN}
    return leaks(train, {**others, **held_out})


def without_leaks(rows: Sequence[DataRow], report: LeakReport) -> list[DataRow]:
    leaking = {leak.train for leak in report.leaks} | set(report.unread)
    return [row for row in rows if row.split != TRAIN or row.task_sha not in leaking]


def with_few_cheats(rows: Sequence[DataRow]) -> list[DataRow]:
    """Limits cheats to a share of at most `MOST_CHEATS` of each split; their ids determine which ones are kept."""
    kept: list[DataRow] = []
    for name in dict.fromkeys(row.split for row in rows):
        mine = [row for row in rows if row.split == name]
        cheats = sorted((row for row in mine if row.quality == "cheat"), key=lambda row: row.id)
        most = int(MOST_CHEATS * (len(mine) - len(cheats)) / (1 - MOST_CHEATS))
        staying = {row.id for row in cheats[:most]}
        kept += [row for row in mine if row.quality != "cheat" or row.id in staying]
    return kept


def write(
    folder: Path,
    collected: Collected,
    held_out: Mapping[str, str],
    *,
    seed: int = 0,
    fixed: Mapping[str, str] | None = None,
    format_: Format = "parquet",
    drop_leaks: bool = False,
    say: Say = lambda line: None,
) -> dict[str, Any]:
    """Writes the data set and returns the manifest. If any training row is similar to a held-out one, writes only `leaks.json` and raises
    `LeaksFound`."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = with_splits(collected.rows, seed, fixed or {})
    report = leak_report(rows, held_out)
    dropped = 0
    if drop_leaks and not report.clean:
        kept = without_leaks(rows, report)
        dropped, rows = len(rows) - len(kept), kept
        report = leak_report(rows, held_out)
    write_json(folder / "leaks.json", report.as_json())
    if not report.clean:
        first = report.leaks[0] if report.leaks else None
        says = f"{first.train[:12]} is {first.similarity:.0%} like {first.held_out}" if first else f"{report.unread[0]} cannot be read"
        raise LeaksFound(f"{len(report.leaks)} leaks, {len(report.unread)} sources that cannot be read; the first: {says}: {folder / 'leaks.json'}")
    rows = with_few_cheats(rows)
    manifest = _manifest(collected, rows, report, seed, dropped)
    for skill, name in (("write", "skill1"), ("improve", "skill2")):
        for part in ("train", "validation", "test"):
            mine = [row for row in rows if row.skill == skill and row.split == part]
            path = write_rows(folder, f"{name}-{part}", mine, format_, {"version": VERSION, "seed": seed})
            manifest["files"][path.name] = len(mine)
            say(f"{path}: {len(mine)} rows")
    write_json(folder / "splits.json", {row.task_sha: row.split for row in rows})
    write_json(folder / "manifest.json", manifest)
    return manifest


def read_splits(path: Path) -> dict[str, str]:
    """Returns the contents of `splits.json` from an earlier export. Raises `ValueError`."""
    found = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(found, dict) or not set(found.values()) <= {"train", "validation", "test"}:
        raise ValueError(f"{path} holds no splits: an object from hashes of tasks to train, validation or test")
    return found


def _manifest(collected: Collected, rows: Sequence[DataRow], report: LeakReport, seed: int, dropped: int) -> dict[str, Any]:
    return {
        "version": VERSION,
        "seed": seed,
        "runs": collected.runs,
        "rows": len(rows),
        "tasks": len({row.task_sha for row in rows}),
        "by_kind": dict(Counter(row.kind for row in rows)),
        "by_quality": dict(Counter(row.quality for row in rows)),
        "by_device": dict(Counter(row.device_model for row in rows)),
        "agreements": dict(Counter(row.agreement for row in rows)),
        "leaks": {"compared": list(report.compared), "rows_dropped": dropped},
        "skipped": dict(collected.skipped),
        "unusable": collected.unusable,
        "files": {},
    }
