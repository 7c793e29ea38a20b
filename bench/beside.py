"""Distributes a list of tasks over several devices: one process per task, a fixed number at a time per device, with rows written to disk as they
arrive.

A process writes its row as JSON to the path that it is given. If it dies or exceeds the time limit of a task, its row says so. A task that is cut off
by the end of the session gets no row and waits for the next session.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.sweep.device import limits  # noqa: E402
from bench.sweep.store import slug, write  # noqa: E402
from verifier.client import Verifier  # noqa: E402
from verifier.jobs import JobResult, VerifyJob  # noqa: E402
from verifier.limits import Limits  # noqa: E402
from verifier.source import sha256  # noqa: E402

END_SECONDS = 5.0  # seconds that a process has to close its verifier after SIGTERM
LAST_SECONDS = END_SECONDS + 5.0  # seconds reserved at the end of a session
Row = dict[str, Any]


@dataclass
class Result:
    """A result file with one row per task. `fixed` records which tasks were drawn and how; a file with other values cannot be continued."""

    path: Path
    fixed: Mapping[str, Any]
    summary: Callable[[Mapping[str, Row]], Any]
    rows: dict[str, Row] = field(default_factory=dict)
    notes: Row = field(default_factory=dict)

    def resume(self) -> None:
        """Reads the rows of an earlier session. Raises `ValueError` if that session drew other tasks."""
        if not self.path.exists():
            return
        content = json.loads(self.path.read_text())
        for name, value in self.fixed.items():
            if content.get(name) != value:
                raise ValueError(f"{self.path} was made with {name} {content.get(name)!r}, not {value!r}: repeat that, or write to another file")
        self.rows = content["rows"]
        self.notes = {name: value for name, value in content.items() if name not in (*self.fixed, "rows", "summary")}

    def add(self, key: str, row: Row) -> None:
        """Records a row, which is on disk before this returns. Fields of an earlier row that are missing in the new row are kept."""
        self.rows[key] = {**self.rows.get(key, {}), **row}
        self.save()

    def save(self) -> None:
        content = {**self.fixed, **self.notes, "summary": self.summary(self.rows), "rows": self.rows}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write(self.path, (json.dumps(content, indent=1) + "\n").encode())


@dataclass
class Beside:
    """A session. `command` returns the command line for a task on a device, given the path of the row that it has to write."""

    result: Result
    devices: Sequence[str]
    command: Callable[[str, str, Path], Sequence[str]]
    end: float  # by `time.monotonic`
    task_seconds: float
    begin_seconds: float = 30.0  # that must be left to start another task
    share: int = 1  # processes at a time per device
    environment: Callable[[str], Mapping[str, str]] = lambda device: {}
    said: Callable[[str, Row], str] = lambda key, row: f"{key}: {row.get('status')}"
    shaped: Callable[[str, Row], Row] = lambda key, row: row  # the fields to record

    def run(self, keys: Iterable[str]) -> list[str]:
        """Runs the tasks in this order, and returns those that were not finished."""
        wanted = list(keys)
        self.waiting, self.lock, self.finished = deque(wanted), threading.Lock(), set[str]()
        threads = [threading.Thread(target=self._serve, args=(device,)) for _ in range(self.share) for device in self.devices]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return [key for key in wanted if key not in self.finished]

    def _serve(self, device: str) -> None:
        while True:
            with self.lock:
                if not self.waiting or self._left() < self.begin_seconds:
                    return
                key = self.waiting.popleft()
            begun = time.monotonic()
            row = self._row(key, device)
            if row is not None:
                with self.lock:
                    self.finished.add(key)
                    facts = {"device": device, "seconds": round(time.monotonic() - begun, 1)}
                    self.result.add(key, {**self.shaped(key, row), **facts})
                    print(f"{device} {self.said(key, row)}", flush=True)

    def _left(self) -> float:
        return self.end - time.monotonic() - LAST_SECONDS

    def _row(self, key: str, device: str) -> Row | None:
        """Returns the row of a task, or None if the end of the session cut it off."""
        seconds = min(self.task_seconds, self._left())
        with tempfile.TemporaryDirectory(prefix="beside-") as made:
            out, log = Path(made) / "row.json", Path(made) / "log"
            with log.open("wb") as output:
                status = ended(self.command(key, device, out), seconds, {**os.environ, **self.environment(device)}, output)
            if status == 0 and out.exists():
                return json.loads(out.read_text())
            if status is None:
                return {"status": "timed_out", "message": f"not done within {seconds:.0f} s"} if seconds >= self.task_seconds else None
            lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
            return {"status": "failed", "message": f"its process ended with status {status}: {' / '.join(lines[-2:])[-400:]}"}


def ended(command: Sequence[str], seconds: float, environment: Mapping[str, str], output: Any) -> int | None:
    """Runs a command to completion and returns its exit status, or None if it was killed after `seconds`. Its child processes end with it."""
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_SECONDS)
        return None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


async def verdict(device: str, data_dir: Path, **job: Any) -> tuple[JobResult, Row | None]:
    """Runs one `VerifyJob` with the sweep's limits in a separate verifier. Returns the result, and the environment of the measurement."""
    usual = Limits()
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    verifier = Verifier(device, data_dir, limits(argparse.Namespace(timing_seconds=usual.full_timing, autotune_seconds=0.0)))
    try:
        result = await verifier.run(VerifyJob(**job))
    finally:
        await verifier.close()
    return result, verifier.environment.model_dump(exclude={"device"}) if verifier.environment is not None else None


def stored_programs(rows: Mapping[str, Row], archive: Path) -> dict[str, str]:
    """Returns the programs of an archive that the rows name by hash: text by key."""
    by_name = {f"{slug(key)}.py": key for key in rows}
    found = {}
    with tarfile.open(archive) as tar:
        for name in sorted(by_name.keys() & set(tar.getnames())):
            text = tar.extractfile(name).read().decode()  # type: ignore[union-attr]
            if sha256(text) == rows[by_name[name]].get("program"):
                found[by_name[name]] = text
    return found


def shuffled(keys: Iterable[str], seed: int) -> list[str]:
    """Returns the keys ordered by digest, so a key's position does not depend on the other keys."""
    return sorted(keys, key=lambda key: hashlib.sha256(f"{seed}/{key}".encode()).digest())
