"""What finished runs leave for later ones on the same device: how far strategies kept their promises, and the numbers that kernels were tuned to.

Records of strategies are kept by task, so that a benchmark that is being scored learns nothing from its own tasks. A tuned number is a measurement
of one kernel, found by the text that the kernel has without it; it holds wherever that kernel is printed.
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

Numbers = dict[str, int]  # by knob
SIDE_BY_SIDE = 2  # a program and the one it was made from, timed in turn; before, each against eager at another time
MOST_KERNELS = 5000  # of a device; the oldest go


class Experience(BaseModel):
    """On one model of device."""

    gains: int = 1  # how they were measured: `SIDE_BY_SIDE`, or by an earlier way
    tasks: dict[str, dict[str, Record]] = {}  # sha of a task's source: strategies
    tuned: dict[str, Numbers] = {}  # fingerprint of a kernel: numbers


class Recalled(BaseModel):
    records: dict[str, Record] = {}
    tuned: dict[str, Numbers] = {}  # of the kernels that were asked for


class ExperiencePort(Protocol):
    async def recall(self, device_model: str, kernels: list[str], exclude: Split) -> Recalled: ...

    async def learn(self, device_model: str, task: str, records: Mapping[str, Record], tuned: Mapping[str, Numbers]) -> None:
        """The same run may be learned twice: what is new replaces what is there."""


async def recall(span: Span, situation: Situation, device_model: str, kernels: Callable[[], Iterable[str]]) -> Recalled:
    """As an effect of `span`, so that a resumed run sees the same; nothing where no port is connected. `kernels`: fingerprints of this task's."""
    port = span.run.experience
    if port is None:
        return Recalled()
    split = span.run.split or Split()
    exclude = Split(tasks=split.tasks | {sha256(situation.task_source)}, suites=split.suites)

    async def find() -> dict[str, Any]:
        return (await port.recall(device_model, sorted(set(kernels())), exclude)).model_dump(mode="json")

    return Recalled.model_validate(await span.effect("experience", find))


class FolderExperience:
    """One JSON file a device model. Written whole, so that a reader never sees half of it."""

    def __init__(self, folder: Path):
        self.folder = folder

    async def recall(self, device_model: str, kernels: list[str], exclude: Split) -> Recalled:
        known = self._read(device_model)
        # Suites are not known here: while one is being scored, no task has anything to say.
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
        """One writer at a time, over all processes of this host."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _read(self, device_model: str) -> Experience:
        """Nothing where there is none yet, or the file is damaged: it is only a memory. What strategies brought by an earlier way of measuring is
        discarded; a number that a kernel was tuned to stays."""
        try:
            known = Experience.model_validate(json.loads(self._path(device_model).read_text()))
        except (OSError, ValueError, ValidationError):
            return Experience()
        return known if known.gains == SIDE_BY_SIDE else known.model_copy(update={"tasks": {}})

    def _path(self, device_model: str) -> Path:
        return self.folder / f"{re.sub(r'[^A-Za-z0-9._-]+', '-', device_model) or 'unknown'}.json"
