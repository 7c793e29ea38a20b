"""Stores what a sweep keeps between sessions: a few files in one folder, each written atomically.

kernelbench.json     one row per task, the time spent on interrupted runs, and the verdicts of KernelBench's own evaluation programs.tar.gz
best.py of every run that ended with a program, by task name sweep.log            the latest output of the device processes experience.tar.gz    from
sessions with --warm: tuned kernel numbers, and how well strategies kept their promises unfinished.tar.gz    traces of runs interrupted by a time
limit; the next session resumes them
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tarfile
import threading
from collections.abc import Iterable
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

from bench.sweep.rows import dumped
from bench.sweep.tasks import ROOT

ROWS, PROGRAMS, UNFINISHED, EXPERIENCE = "kernelbench.json", "programs.tar.gz", "unfinished.tar.gz", "experience.tar.gz"
LOG, LOG_BYTES = "sweep.log", 100_000  # latest output of the device processes
MOST_BYTES = 15 << 20  # maximum size of each archive, so that it can be copied between hosts
CODE = ("compiler", "agents/roles", "agents/workflows", "agents/strategies", "verifier")


class Store:
    """The stored files. `folder` is written to; `start`, an earlier folder, is only read. `work` holds unpacked runs and programs (many files).
    Anything left there by a session with another folder or start is removed."""

    def __init__(self, folder: Path, start: Path | None = None, work: Path | None = None):
        self.folder, self.work = folder, work or folder / "work"
        self.lock = threading.Lock()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._claim_work(f"{folder.resolve()} {start.resolve() if start else ''}\n")
        start = start or folder
        path = start / ROWS if start.is_dir() else start
        self.content: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"rows": {}}
        self.code = code()
        self.content.setdefault("unfinished", {})
        for name, into in ((PROGRAMS, self.programs), (UNFINISHED, self.runs), (EXPERIENCE, self.experience)):
            if (path.parent / name).exists():
                unpack(path.parent / name, into)
        for key, entry in list(self.content["unfinished"].items()):
            if entry.get("code") != self.code:  # a run resumes only with the code that it began with
                shutil.rmtree(self.runs / slug(key), ignore_errors=True)
                self.content.setdefault("given_up", {})[key] = entry["seconds"]  # records that it takes a long time
                del self.content["unfinished"][key]

    def _claim_work(self, owner: str) -> None:
        mark = self.work / "owner"
        if self.work.exists() and any(self.work.iterdir()) and not mark.exists():
            raise FileExistsError(f"{self.work} is not a sweep's: name another --data-dir")
        if self.work.exists() and mark.exists() and mark.read_text() != owner:
            shutil.rmtree(self.work)
        self.work.mkdir(parents=True, exist_ok=True)
        mark.write_text(owner)

    @property
    def programs(self) -> Path:
        return self.work / "programs"

    @property
    def runs(self) -> Path:
        return self.work / "runs"

    @property
    def experience(self) -> Path:
        return self.work / "experience"

    @property
    def rows(self) -> dict[str, dict[str, Any]]:
        return self.content["rows"]

    def finished(self, key: str, row: dict[str, Any], program: Path | None = None) -> None:
        """Records a row, which is on disk before this returns."""
        with self.lock:
            self.content["unfinished"].pop(key, None)
            self.content.get("given_up", {}).pop(key, None)
            self.rows[key] = {**row, "made": now(), "code": self.code}
            kept = self.programs / f"{slug(key)}.py"
            kept.unlink(missing_ok=True)
            if program is not None and program.exists():
                self.programs.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(program, kept)
            self._write()
            self._pack_programs()

    def interrupted(self, key: str, seconds: float) -> float:
        """Records an interrupted run, which the next session resumes. Returns the task's total time in seconds."""
        with self.lock:
            entry = self.content["unfinished"].setdefault(key, {"seconds": 0.0, "code": self.code})
            entry["seconds"] = round(entry["seconds"] + seconds, 1)
            self._write()
            return entry["seconds"]

    def accepted(self, key: str, verdict: dict[str, Any]) -> None:
        with self.lock:
            self.content.setdefault("acceptance", {})[key] = {**verdict, "program": self.rows[key].get("program")}
            self._write()

    def note(self, **facts: Any) -> None:
        with self.lock:
            self.content.update(facts)
            self._write()

    def pack(self) -> None:
        """Packs the two archives up to the maximum size. Unfinished runs are packed smallest first."""
        with self.lock:
            self._pack_programs()
            write(
                self.folder / LOG,
                b"".join(b"== %s\n%s\n" % (log.name.encode(), log.read_bytes()[-LOG_BYTES:]) for log in sorted(self.work.glob("*.log"))),
            )
            if self.experience.exists():
                write(self.folder / EXPERIENCE, archive((path, path.name) for path in self.experience.glob("*.json")))
            self.runs.mkdir(parents=True, exist_ok=True)
            waiting = [self.runs / slug(key) for key in self.content["unfinished"]]
            packed, left = [], MOST_BYTES
            for run in sorted((path for path in waiting if path.is_dir()), key=weight):
                left -= weight(run)  # size before compression, to be safe
                if left < 0:
                    break
                packed.append(run)
            write(self.folder / UNFINISHED, archive((path, f"{run.name}/{path.relative_to(run)}") for run in packed for path in files(run)))

    def _pack_programs(self) -> None:
        programs = sorted(self.programs.glob("*.py")) if self.programs.exists() else []
        write(self.folder / PROGRAMS, archive((path, path.name) for path in programs))

    def _write(self) -> None:
        self.content = {**{k: v for k, v in self.content.items() if k != "rows"}, "made": now(), "rows": self.rows}
        write(self.folder / ROWS, dumped(self.content).encode())


def merged(contents: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Merges several sessions from several hosts. The newest row of a task counts, regardless of its result."""
    result: dict[str, Any] = {"rows": {}}
    for content in sorted(contents, key=lambda content: content.get("made", "")):
        rows = dict(result["rows"])
        for key, row in content["rows"].items():
            if key not in rows or row.get("made", "") >= rows[key].get("made", ""):
                rows[key] = row
        acceptance = {**result.get("acceptance", {}), **content.get("acceptance", {})}
        result = {**result, **content, "rows": rows, **({"acceptance": acceptance} if acceptance else {})}
    result["unfinished"] = {}
    return result


def gathered(rows: dict[str, dict[str, Any]], archives: Iterable[Path]) -> dict[str, bytes]:
    """Returns the program named by each row, by file name. For a row that names none, returns the latest available program."""
    of = {f"{slug(key)}.py": row.get("program") for key, row in rows.items()}
    found: dict[str, bytes] = {}
    for path in archives:
        if not path.exists():
            continue
        with tarfile.open(path) as tar:
            for name in of.keys() & set(tar.getnames()):
                source = tar.extractfile(name).read()
                if of[name] in (None, hashlib.sha256(source).hexdigest()):
                    found[name] = source
    return dict(sorted(found.items()))


def archive(members: Iterable[tuple[Path, str]]) -> bytes:
    return packed({name: path.read_bytes() for path, name in members})


def packed(files: dict[str, bytes]) -> bytes:
    data = BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, BytesIO(content))
    return data.getvalue()


def unpack(path: Path, into: Path) -> None:
    """Unpacks an archive. Existing files are kept."""
    into.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path) as tar:
        tar.extractall(into, [m for m in tar.getmembers() if not (into / m.name).exists()], filter="data")


def write(path: Path, data: bytes) -> None:
    half = path.with_name(path.name + ".part")
    half.write_bytes(data)
    os.replace(half, path)


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def weight(folder: Path) -> int:
    return sum(path.stat().st_size for path in files(folder))


def slug(key: str) -> str:
    """Returns a file name for a row: "level3-18_SqueezeNet-fp32-strict"."""
    return key.replace("/", "-").replace(" ", "-")


def code() -> str:
    """Returns a hash of the sources that determine the contents of a row."""
    total = hashlib.sha256()
    for folder in CODE:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and path.suffix in (".py", ".md", ".cuh", ".h"):
                total.update(f"{path.relative_to(ROOT)}\n".encode() + path.read_bytes())
    return total.hexdigest()[:12]


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
