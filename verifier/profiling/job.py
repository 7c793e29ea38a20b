"""The job `profile`: a timeline and a digest of a few calls of a program, or of the reference."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from verifier.build.store import Artefacts
from verifier.devices.base import Bind, DeviceError
from verifier.evaluation import Ended, Evaluation
from verifier.jobs import Profile, ProfileJob, StageEvent, VerifyJob
from verifier.layout import LayoutError
from verifier.pool import Party, PartyFailure, Pool
from verifier.profiling.digest import digest
from verifier.profiling.kineto import import_kineto
from verifier.profiling.nsys import INSIDE_REPORT, Nsys, find_nsys
from verifier.profiling.nsys_import import ImportProblem
from verifier.profiling.own_kernels import is_own, own_kernel_names
from verifier.profiling.timeline import Timeline
from verifier.sandbox import bubblewrap, import_path, protection
from verifier.session import ReferenceSession, Values, give
from verifier.source import sha256

MAX_TRACE = 256 << 20
FINISH = 180.0  # seconds in which nsys writes, exports and leaves the timeline
OnStage = Callable[[StageEvent], None]


@dataclass
class _Recorded:
    timeline: Timeline
    tool: Literal["nsys", "cupti", "torch-profiler"]
    version: str
    fallback_reason: str = ""


def profile_job(job: ProfileJob, pool: Pool, data_dir: Path, on_stage: OnStage) -> tuple[Profile, bytes]:
    """Raises `DeviceError` with the cause where the task or the program does not run (what is profiled has passed before), and `Cancelled`."""
    try:
        on_stage(StageEvent(stage="profile", status="started"))
        artefacts = _artefacts(job, pool, data_dir, on_stage)
        reference = ReferenceSession(pool, job.task_source, job.precision, job.mode)
        try:
            seed = secrets.randbits(32)
            reference.load(seed)
            subject = _Subject(job, pool, reference, reference.inputs(seed + 1), seed, artefacts)
            recorded = subject.record(on_stage)
        finally:
            reference.close()
    except PartyFailure as failure:
        where = f"line {failure.line}: " if failure.line else ""
        raise DeviceError(f"the profile could not be taken: {where}{failure.message}") from None
    except (LayoutError, ImportProblem) as error:
        raise DeviceError(f"the profile could not be taken: {error}") from None
    return _profile(job, pool, recorded)


def _artefacts(job: ProfileJob, pool: Pool, data_dir: Path, on_stage: OnStage) -> Artefacts | None:
    if job.program_source is None:
        return None
    verify = VerifyJob(task_source=job.task_source, program_source=job.program_source, precision=job.precision, mode=job.mode)
    try:
        return Evaluation(verify, pool, data_dir, lambda job: _no_session(), on_stage).built()
    except Ended as ended:
        raise DeviceError(f"the program cannot be profiled: {ended.message}") from None


def _no_session() -> ReferenceSession:
    raise AssertionError("building asks for no reference")


@dataclass
class _Subject:
    """The program, or the reference, with the inputs of the calls that are watched."""

    job: ProfileJob
    pool: Pool
    reference: ReferenceSession
    inputs: Values
    seed: int
    artefacts: Artefacts | None

    def record(self, on_stage: OnStage) -> _Recorded:
        if self.pool.device.kind == "cpu":
            return self._by_torch("Nsight Systems records GPUs; this is the CPU")
        nsys, why = find_nsys()
        if nsys is None or why:
            return self._by_torch(why)
        try:
            return self._by_nsys(nsys)
        except (PartyFailure, _NsysFailed) as error:
            said = _said(11, error.detail) if isinstance(error, PartyFailure) else str(error)
            why = f"nsys {nsys.version} gave no timeline: {said}"
            on_stage(StageEvent(stage="profile", status="progress", detail=why[:300]))
            return self._by_torch(why[:600])

    def _by_torch(self, why: str) -> _Recorded:
        party = self._party()
        try:
            frame = self._ask(party, "torch")
        finally:
            self.pool.give_back(party)
        timeline = import_kineto(frame.raw)
        on_cpu = self.pool.device.kind == "cpu"
        return _Recorded(timeline, "torch-profiler" if on_cpu else "cupti", f"torch {torch.__version__}", why)

    def _by_nsys(self, nsys: Nsys) -> _Recorded:
        folder = tempfile.mkdtemp(prefix="stitch-nsys-")
        wrapped = bool(bubblewrap())
        inside = INSIDE_REPORT if wrapped else folder
        prefix = ["/bin/sh", "-c", nsys.script(inside, import_path(), wrapped), "sh"]
        try:
            party = self._party(prefix, [Bind(folder, inside)] if wrapped else [], nsys.binds() if wrapped else [])
            try:
                self._ask(party, "nsys")
                party.send("exit", {}, 10)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    party.spawned.process.wait(FINISH)
                status = party.spawned.process.poll()
            finally:
                self.pool.give_back(party)
            path = Path(folder) / "timeline"
            if status != 0 or not path.is_file() or path.is_symlink() or path.stat().st_size > MAX_TRACE:
                raise _NsysFailed(_said(status, party.spawned.text()))
            try:
                timeline = Timeline.from_bytes(path.read_bytes())
            except ValueError as error:
                raise _NsysFailed(str(error)) from None
            if not timeline.events:
                raise _NsysFailed("its recording is empty")
            timeline.warnings = [text for text in timeline.warnings if not text.startswith("version ")]
            return _Recorded(timeline, "nsys", nsys.version)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _party(self, prefix: list[str] | None = None, writable: list[Bind] | None = None, binds: list[Bind] | None = None) -> Party:
        """A fresh party in its role, with the model constructed."""
        job, pool, reference = self.job, self.pool, self.reference
        role = "baseline" if self.artefacts is None else "runner"
        party = pool.spawn("device", prefix, writable, binds)
        with pool.lock:
            pool.busy.append(party)
        try:
            party.become(role, job.precision, job.mode)
            if self.artefacts is None:
                party.ask("load", {"source": job.task_source, "seed": self.seed}, pool.limits.load)
                return party
            message: dict[str, Any] = {"source": job.program_source, "artefacts": self.artefacts.index, "variables": pool.device.variables("device")}
            party.ask("import", message, pool.limits.load, raw=self.artefacts.data)
            specs = [entry.spec for entry in reference.state]
            message = {
                "seed": self.seed,
                "init": {"tree": reference.init.tree, **give(party, "init", reference.init.tensors, reference.init.specs)},
                "names": [entry.name for entry in reference.state],
                "state": give(party, "state", reference.state_tensors, specs),
            }
            party.ask("construct", message, pool.limits.load)
            return party
        except PartyFailure:
            pool.give_back(party)
            raise

    def _ask(self, party: Party, tool: str) -> Any:
        message = {"tree": self.inputs.tree, "rng": 1, "iterations": self.job.iterations, "tool": tool}
        message |= give(party, "in", self.inputs.tensors, self.inputs.specs)
        calls = self.job.iterations + 4
        return party.ask("profile", message, self.pool.limits.call * calls, max_raw=MAX_TRACE)


class _NsysFailed(RuntimeError):
    """nsys ran, and there is no timeline."""


def _said(status: int | None, printed: str) -> str:
    step = {11: "its run failed", 12: "its export failed", 13: "its export could not be read", None: "it did not finish in time"}
    last = [line for line in printed.splitlines() if line.strip()][-4:]
    return f"{step.get(status, f'it ended with status {status}')}: {' / '.join(last)[:400]}"


def _profile(job: ProfileJob, pool: Pool, recorded: _Recorded) -> tuple[Profile, bytes]:
    own = own_kernel_names(job.program_source) if job.program_source is not None else frozenset()
    on_device = pool.device.kind == "cuda"
    found = digest(recorded.timeline, lambda name: is_own(name, own), on_device)
    timeline = recorded.timeline.crop(*found.window)
    if on_device:
        timeline.device = pool.device.environment().device_name
    if found.iterations == job.iterations:
        # nsys says this of every recording that ends before its process does; here every call that was to be watched is in it.
        timeline.warnings = [text for text in timeline.warnings if "events might have been collected" not in text]
    timeline.warnings += found.warnings
    profile = Profile(
        task=sha256(job.task_source),
        program=sha256(job.program_source) if job.program_source is not None else None,
        tool=recorded.tool,
        tool_version=recorded.version,
        fallback_reason=recorded.fallback_reason,
        iterations=found.iterations,
        wall_us_per_iteration=found.wall_us_per_iteration,
        device_busy=found.device_busy,
        launches_per_iteration=found.launches_per_iteration,
        gap_us_p50=found.gap_us_p50,
        kernels=found.kernels,
        protection=protection(),
        warnings=timeline.warnings,
    )
    return profile, timeline.to_bytes()
