"""The `profile` job, which produces a timeline and a digest of a few calls of a program or the reference and, on request, hardware counters of its
kernels."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from verifier.build.artefacts import Artefacts
from verifier.build.building import BuildFailed
from verifier.build.late import Built
from verifier.confinement.layers import protection
from verifier.confinement.visible import import_path
from verifier.devices.base import DeviceError
from verifier.jobs import Profile, ProfileJob, Roofline, SanitizeJob, StageEvent, VerifyJob
from verifier.judge.capturing import known_capture
from verifier.judge.endings import Ended
from verifier.judge.evaluation import Evaluation
from verifier.judge.party_failure import PartyFailure
from verifier.judge.pool import Pool
from verifier.judge.session import ReferenceSession
from verifier.layout import LayoutError
from verifier.profiling.annotating import with_ranges
from verifier.profiling.binaries import resource_rows
from verifier.profiling.digest import digest
from verifier.profiling.host_calls import host_calls
from verifier.profiling.kineto import import_kineto
from verifier.profiling.nsight.counting import count
from verifier.profiling.nsight.nsys import Nsys, find_nsys
from verifier.profiling.nsight.nsys_schema import ImportProblem
from verifier.profiling.own_kernels import is_own, own_kernel_names
from verifier.profiling.redact import last_lines, redacted
from verifier.profiling.subject import MAX_TRACE, Subject
from verifier.profiling.timeline import Timeline
from verifier.source import sha256

OnStage = Callable[[StageEvent], None]


@dataclass
class _Recorded:
    timeline: Timeline
    tool: Literal["nsys", "cupti", "torch-profiler"]
    version: str
    fallback_reason: str = ""


def profile_job(job: ProfileJob, pool: Pool, data_dir: Path, on_stage: OnStage) -> tuple[Profile, bytes]:
    """Profiles the subject. Raises `DeviceError` with the cause if the task or the program does not run (although it has passed before), and
    `Cancelled`."""
    on_stage(StageEvent(stage="profile", status="started"))
    with watched(job, pool, data_dir, on_stage, "profile") as subject:
        recorded = _record(subject, on_stage)
        profile, timeline = _profile(job, pool, recorded)
        profile.kernels = resource_rows.attach(profile.kernels, subject.artefacts, pool.device)
        profile.roofline = _roofline(job, pool, data_dir, subject)
        if job.counters:
            count(profile, subject, on_stage, Timeline.from_bytes(timeline))
        else:
            profile.counters_reason = "not asked for"
    return profile, timeline


@contextmanager
def watched(
    job: ProfileJob | SanitizeJob, pool: Pool, data_dir: Path, on_stage: OnStage, what: str, artefacts: Artefacts | None = None
) -> Iterator[Subject]:
    """Yields the subject of a job, built and with inputs. Failures of the task or the program become a `DeviceError` that names the cause."""
    try:
        made = _built(job, pool, data_dir, on_stage, what) if artefacts is None and job.program_source is not None else None
        reference = ReferenceSession(pool, job.task_source, job.precision, job.mode)
        try:
            seed = secrets.randbits(32)
            reference.load(seed)
            subject = Subject(job, pool, reference, reference.inputs(seed + 1), seed, made.artefacts if made is not None else artefacts)
            if made is not None:
                subject.settle(made)
            yield subject
        finally:
            reference.close()
    except PartyFailure as failure:
        where = f"line {failure.line}: " if failure.line else ""
        raise DeviceError(f"the {what} could not be taken: {where}{redacted(failure.message)}") from None
    except (BuildFailed, LayoutError, ImportProblem) as error:
        raise DeviceError(f"the {what} could not be taken: {redacted(str(error))}") from None


def _built(job: ProfileJob | SanitizeJob, pool: Pool, data_dir: Path, on_stage: OnStage, what: str) -> Built:
    assert job.program_source is not None
    verify = VerifyJob(task_source=job.task_source, program_source=job.program_source, precision=job.precision, mode=job.mode)
    try:
        return Evaluation(verify, pool, data_dir, lambda job: _no_session(), on_stage).built()
    except Ended as ended:
        raise DeviceError(f"the {what} could not be taken: {redacted(ended.message)}") from None


def _no_session() -> ReferenceSession:
    raise AssertionError("building requests no reference")


# The timeline


def _record(subject: Subject, on_stage: OnStage) -> _Recorded:
    if subject.pool.device.kind == "cpu":
        return _by_torch(subject, "Nsight Systems records GPUs; this is the CPU")
    nsys, why = find_nsys()
    if nsys is None or why:
        return _by_torch(subject, why)
    try:
        return _by_nsys(subject, nsys)
    except _NsysFailed as error:
        why = f"nsys {nsys.version} gave no timeline: {error}"
        on_stage(StageEvent(stage="profile", status="progress", detail=why[:300]))
        return _by_torch(subject, why[:600])


def _by_torch(subject: Subject, why: str) -> _Recorded:
    party = subject.party()
    try:
        frame = subject.ask(party, "torch", _iterations(subject), _limit(subject))
    finally:
        subject.pool.give_back(party)
    timeline = import_kineto(frame.raw)
    on_cpu = subject.pool.device.kind == "cpu"
    return _Recorded(timeline, "torch-profiler" if on_cpu else "cupti", f"torch {torch.__version__}", why)


def _by_nsys(subject: Subject, nsys: Nsys) -> _Recorded:
    def script(folder: str, wrapped: bool) -> str:
        return nsys.script(folder, import_path(), wrapped)

    with subject.under(script, nsys.binds(), "nsys", _iterations(subject), _limit(subject)) as ran:
        if ran.failure is not None:
            raise _NsysFailed(_said(11, ran.failure.detail or ran.failure.message))
        path = ran.folder / "timeline"
        if ran.status != 0 or not path.is_file() or path.is_symlink() or path.stat().st_size > MAX_TRACE:
            raise _NsysFailed(_said(ran.status, ran.printed))
        try:
            timeline = Timeline.from_bytes(path.read_bytes())
        except ValueError as error:
            raise _NsysFailed(str(error)) from None
        if not timeline.events:
            raise _NsysFailed("its recording is empty")
        timeline.warnings = [redacted(text) for text in timeline.warnings if not text.startswith("version ")]
        return _Recorded(timeline, "nsys", nsys.version)


def _iterations(subject: Subject) -> int:
    assert isinstance(subject.job, ProfileJob)
    return subject.job.iterations


def _limit(subject: Subject) -> float:
    return subject.pool.limits.call * (_iterations(subject) + 5)


class _NsysFailed(RuntimeError):
    """Raised if nsys ran but produced no timeline."""


def _said(status: int | None, printed: str) -> str:
    step = {11: "its run failed", 12: "its export failed", 13: "its export could not be read", None: "it did not finish in time"}
    return f"{step.get(status, f'it ended with status {status}')}: {last_lines(printed)}"


def _profile(job: ProfileJob, pool: Pool, recorded: _Recorded) -> tuple[Profile, bytes]:
    own = own_kernel_names(job.program_source) if job.program_source is not None else frozenset()
    on_device = pool.device.kind == "cuda"
    found = digest(recorded.timeline, lambda name: is_own(name, own), on_device)
    recording = recorded.timeline
    if on_device:
        recording.device = pool.device.environment().device_name
        recording.own = frozenset(name for name in recording.names if is_own(name, own))
    if found.iterations == job.iterations:
        # nsys warns about every recording that ends before its process does, but this recording contains every profiled call.
        recording.warnings = [text for text in recording.warnings if "events might have been collected" not in text]
    recording.warnings += found.warnings
    timeline = with_ranges(recording).crop(*found.window)
    profile = Profile(
        task=sha256(job.task_source),
        program=sha256(job.program_source) if job.program_source is not None else None,
        tool=recorded.tool,
        tool_version=recorded.version,
        fallback_reason=redacted(recorded.fallback_reason),
        iterations=found.iterations,
        wall_us_per_iteration=found.wall_us_per_iteration,
        device_busy=found.device_busy,
        launches_per_iteration=found.launches_per_iteration,
        gap_us_p50=found.gap_us_p50,
        kernels=found.kernels,
        host=host_calls(timeline) if on_device else None,
        protection=protection(),
        warnings=timeline.warnings,
    )
    return profile, timeline.to_bytes()


def _roofline(job: ProfileJob, pool: Pool, data_dir: Path, subject: Subject) -> Roofline:
    """Computes the roofline from the task's captured graph if there is one, otherwise only from the bytes of its inputs and weights."""
    capture = known_capture(data_dir, sha256(job.task_source), job.mode)
    ceiling = pool.device.ceiling(job.precision)
    weights = sum(entry.spec.nbytes for entry in subject.reference.state if entry.alias is None)
    nbytes = (capture.bytes_min if capture else None) or subject.inputs.nbytes + weights or None
    flops = capture.flops if capture else None
    memory = nbytes / ceiling.bytes_per_second * 1e3 if nbytes and ceiling.bytes_per_second else None
    compute = flops / ceiling.flops_per_second * 1e3 if flops and ceiling.flops_per_second else None
    bound: Literal["memory", "compute"] | None = None if memory is None or compute is None else "memory" if memory >= compute else "compute"
    return Roofline(bytes=nbytes, flops=flops, memory_ms=memory, compute_ms=compute, bound=bound, ceilings=ceiling.source)
