"""Experience that finished runs leave for later runs on the same device model: how well strategies met their expected gains, and tuned kernel
numbers.

Strategy records are kept by task, so that nothing from a benchmark's own tasks is used while that benchmark is being scored. A tuned number is the
result of measuring one kernel. It is looked up by the kernel's text without the number, and applies wherever that kernel is generated.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import BaseModel, ValidationError

from agents.memory.inspirations import Split
from agents.strategies.ledger import Record, joined
from verifier.source import sha256

if TYPE_CHECKING:
    from agents.roles.situation import Situation
    from agents.span import Span

Numbers = dict[str, int]  # numbers, keyed by knob
SIDE_BY_SIDE = 2  # a program and its parent are timed alternately; previously, each was timed separately against eager
MOST_KERNELS = 5000  # maximum number of kernels per device; the oldest are dropped


class Experience(BaseModel):
    """The experience for one device model."""

    gains: int = 1  # how the gains were measured: `SIDE_BY_SIDE`, or an earlier method
    tasks: dict[str, dict[str, Record]] = {}  # strategy records by the sha of the task's source
    tuned: dict[str, Numbers] = {}  # numbers, keyed by kernel fingerprint


class Recalled(BaseModel):
    records: dict[str, Record] = {}
    tuned: dict[str, Numbers] = {}  # tuned numbers for the requested kernels


class ExperiencePort(Protocol):
    async def recall(self, device_model: str, kernels: list[str], exclude: Split) -> Recalled: ...

    async def learn(self, device_model: str, task: str, records: Mapping[str, Record], tuned: Mapping[str, Numbers]) -> None:
        """Learns from a run. A second call for the same run replaces its earlier entry."""


async def recall(span: Span, situation: Situation, device_model: str, kernels: Callable[[], Iterable[str]]) -> Recalled:
    """Recalls experience as an effect of `span`, so a resumed run gets the same experience. The result is empty if no port is connected.
    `kernels`: fingerprints of the task's kernels."""
    port = span.run.experience
    if port is None:
        return Recalled()
    split = span.run.split or Split()
    exclude = Split(tasks=split.tasks | {sha256(situation.task_source)}, suites=split.suites)

    async def find() -> dict[str, Any]:
        return (await port.recall(device_model, sorted(set(kernels())), exclude)).model_dump(mode="json")

    return Recalled.model_validate(await span.effect("experience", find))


class FolderExperience:
    """Stores one JSON file per device model, written atomically, so a reader never sees an incomplete file."""

    def __init__(self, folder: Path):
        self.folder = folder

    async def recall(self, device_model: str, kernels: list[str], exclude: Split) -> Recalled:
        known = self._read(device_model)
        # A task's suite is not known here, so nothing is recalled from any task while a suite is being scored.
        records = joined(*(records for task, records in known.tasks.items() if not exclude.suites and not exclude.holds(task)))
        return Recalled(records=records, tuned={kernel: known.tuned[kernel] for kernel in kernels if kernel in known.tuned})

    async def learn(self, device_model: str, task: str, records: Mapping[str, Record], tuned: Mapping[str, Numbers]) -> None:
        if not device_model or not (records or tuned):
            return
        with self._alone():
            known = self._read(device_model)
            kept = [*((k, v) for k, v in known.tuned.items() if k not in tuned), *tuned.items()][-MOST_KERNELS:]
            found = Experience(gains=SIDE_BY_SIDE, tasks={**known.tasks, task: dict(records)}, tuned=dict(kept))
            scratch = self._path(device_model).with_suffix(f".{os.getpid()}")
            scratch.write_text(found.model_dump_json())
            os.replace(scratch, self._path(device_model))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Ensures that only one process on this host writes at a time."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _read(self, device_model: str) -> Experience:
        """Reads the experience. If the file does not exist or is damaged, the result is empty, because runs can do without it. Strategy gains that
        were measured with an earlier method are discarded; tuned kernel numbers are kept."""
        try:
            known = Experience.model_validate(json.loads(self._path(device_model).read_text()))
        except (OSError, ValueError, ValidationError):
            return Experience()
        return known if known.gains == SIDE_BY_SIDE else known.model_copy(update={"tasks": {}})

    def _path(self, device_model: str) -> Path:
        return self.folder / f"{re.sub(r'[^A-Za-z0-9._-]+', '-', device_model) or 'unknown'}.json"
