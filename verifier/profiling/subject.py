"""The subject that a profiler or sanitizer observes: the program or the reference, in a fresh party with the task's inputs."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verifier.build.artefacts import Artefacts
from verifier.build.late import Built, asks_later
from verifier.channel import Frame
from verifier.confinement.visible import bubblewrap
from verifier.devices.base import Bind
from verifier.jobs import ProfileJob, SanitizeJob
from verifier.judge.asking import Party
from verifier.judge.party_failure import PartyFailure
from verifier.judge.pool import Pool
from verifier.judge.session import ReferenceSession, Values, give
from verifier.own_types import chooses_types

INSIDE_REPORT = "/report"  # the only folder that a tool may write to, as it appears in the sandbox
MAX_TRACE = 256 << 20
FINISH = 180.0  # seconds for a tool to write its report and exit


@dataclass
class Ran:
    """A tool's run around a party. If the party did not answer, `failure` explains why."""

    folder: Path
    status: int | None  # null: it did not finish in time
    printed: str
    failure: PartyFailure | None

    def read(self, name: str, limit: int = 32 << 20) -> str:
        """Reads a text file that the tool wrote; empty if there is none. A party may have written the file, so links are not followed and at most
        `limit` bytes are read."""
        path = self.folder / name
        if path.is_symlink() or not path.is_file():
            return ""
        with path.open("rb") as file:
            return file.read(limit).decode("utf-8", "replace")


@dataclass
class Subject:
    job: ProfileJob | SanitizeJob
    pool: Pool
    reference: ReferenceSession
    inputs: Values
    seed: int
    artefacts: Artefacts | None  # null: the reference itself

    def party(
        self,
        prefix: Sequence[str] = (),
        writable: Sequence[Bind] = (),
        binds: Sequence[Bind] = (),
        load: float | None = None,
    ) -> Party:
        """Returns a fresh party in its role, with the model constructed. `load` is the time limit of each step in seconds, for tools that slow the
        steps down."""
        job, pool, reference = self.job, self.pool, self.reference
        load = load or pool.limits.load
        role = "baseline" if self.artefacts is None else "runner"
        party = pool.spawn("device", prefix=prefix, writable=writable, binds=binds)
        with pool.lock:
            pool.busy.append(party)
        try:
            party.become(role, job.precision, job.mode)
            if self.artefacts is None:
                party.ask("load", {"source": job.task_source, "seed": self.seed}, load)
                return party
            party.import_program(job.program_source or "", self.artefacts, load)
            specs = [entry.spec for entry in reference.state]
            message: dict[str, Any] = {
                "seed": self.seed,
                "own_types": chooses_types(job.task_source),
                "init": {"tree": reference.init.tree, **give(party, "init", reference.init.tensors, reference.init.specs)},
                "names": [entry.name for entry in reference.state],
                "state": give(party, "state", reference.state_tensors, specs),
            }
            party.ask("construct", message, load)
            return party
        except PartyFailure:
            pool.give_back(party)
            raise

    def settle(self, made: Built) -> None:
        """Calls a program that may request builds on first use, so that these builds are ready when a tool runs. Raises `PartyFailure` and
        `BuildFailed`."""
        while asks_later(made.program.source):
            party = None
            try:
                party = self.party()
                self.ask(party, "sanitizer", 1, self.pool.limits.call)
                return
            except PartyFailure as failure:
                made.answer(failure)
            finally:
                if party is not None:
                    self.pool.give_back(party)
            self.artefacts = made.artefacts

    def ask(self, party: Party, tool: str, calls: int, limit: float) -> Frame:
        """Makes calls under `tool` ("torch", "nsys", "ncu", "sanitizer") while no processes of other judges use the device, because durations
        matter."""
        message = {"tree": self.inputs.tree, "rng": 1, "iterations": calls, "tool": tool}
        message |= give(party, "in", self.inputs.tensors, self.inputs.specs)
        if tool != "sanitizer":
            party.rest()  # moves it to the processors used for timing
        with party.gate.alone() if tool != "sanitizer" else contextlib.nullcontext():
            return party.ask("profile", message, limit, max_raw=MAX_TRACE)

    @contextmanager
    def under(
        self, script: Callable[[str, bool], str], binds: list[Bind], tool: str, calls: int, limit: float, load: float | None = None
    ) -> Iterator[Ran]:
        """Runs a party inside a tool's shell script: `script(folder, wrapped)` runs "$@" and leaves files in `folder`, which is removed at the
        end."""
        folder = tempfile.mkdtemp(prefix="stitch-profile-")
        wrapped = bool(bubblewrap())
        inside = INSIDE_REPORT if wrapped else folder
        prefix = ["/bin/sh", "-c", script(inside, wrapped), "sh"]
        try:
            failure, status, printed = None, None, ""
            try:
                party = self.party(prefix, [Bind(folder, inside)] if wrapped else [], binds if wrapped else [], load)
                try:
                    self.ask(party, tool, calls, limit)
                    party.send("exit", {}, 10)
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        party.spawned.process.wait(FINISH)
                    status = party.spawned.process.poll()
                except PartyFailure as error:
                    failure = error
                    if error.kind == "raised":  # the tool still has to write its results
                        with contextlib.suppress(PartyFailure, subprocess.TimeoutExpired):
                            party.send("exit", {}, 10)
                            party.spawned.process.wait(30)
                finally:
                    self.pool.give_back(party)
                    printed = party.spawned.text()
            except PartyFailure as error:
                failure = error
            yield Ran(Path(folder), status, printed, failure)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
