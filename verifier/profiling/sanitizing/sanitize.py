"""The `sanitize` job: runs one or two calls of a program under tools that detect invalid accesses, races and reads of uninitialised memory.

The job rebuilds the program, with line numbers (CUDA) or with the checks compiled in (C++ on the CPU). Its findings are data, not a verdict.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from verifier.build.artefacts import Artefacts, checked_asked, checked_index
from verifier.channel import MAX_ARTEFACTS
from verifier.confinement.layers import protection
from verifier.confinement.visible import bubblewrap
from verifier.devices.base import Bind, DeviceError
from verifier.jobs import Sanitized, SanitizeJob, SanitizerTool, StageEvent
from verifier.judge.pool import Pool
from verifier.profiling.job import watched
from verifier.profiling.redact import last_lines, redacted
from verifier.profiling.sanitizing import sanitizer_report
from verifier.profiling.sanitizing.sanitizers import (
    INSIDE_COMPILERS,
    LOG,
    ON_CPU,
    ON_GPU,
    SHOWN,
    AddressSanitizer,
    find_address_sanitizer,
    find_compute_sanitizer,
)
from verifier.profiling.subject import Ran, Subject
from verifier.source import sha256

CALLS = 180.0  # time limit in seconds of the calls under one tool, and of each preceding step
OnStage = Callable[[StageEvent], None]


def sanitize_job(job: SanitizeJob, pool: Pool, data_dir: Path, on_stage: OnStage) -> Sanitized:
    """Runs the tools. Raises `DeviceError` if the task or the program cannot be built or does not run even without a tool."""
    begin = time.monotonic()
    on_stage(StageEvent(stage="sanitize", status="started"))
    found = Sanitized(task=sha256(job.task_source), program=sha256(job.program_source) if job.program_source is not None else None)
    on_cpu = pool.device.kind == "cpu"
    offered = ON_CPU if on_cpu else ON_GPU
    wanted = [cast(SanitizerTool, tool) for tool in (job.tools or offered)]
    found.missing = {
        tool: f"it checks {'GPUs' if on_cpu else 'CPUs'}; this is a {'CPU' if on_cpu else 'GPU'}" for tool in wanted if tool not in offered
    }
    wanted = [tool for tool in wanted if tool in offered]
    if on_cpu:
        _on_cpu(job, pool, data_dir, on_stage, wanted, found)
    else:
        _on_gpu(job, pool, data_dir, on_stage, wanted, found)
    found.seconds = round(time.monotonic() - begin, 3)
    found.protection = protection()
    return found


def _on_gpu(job: SanitizeJob, pool: Pool, data_dir: Path, on_stage: OnStage, wanted: list[SanitizerTool], found: Sanitized) -> None:
    tool_, why = find_compute_sanitizer()
    if tool_ is None:
        found.missing |= dict.fromkeys(wanted, why)
        return
    sanitizer = tool_
    found.tool_version = f"compute-sanitizer {sanitizer.version}"
    with watched(job, pool, data_dir, on_stage, "check") as subject:
        if subject.artefacts is not None:
            # nvcc appends the flags in this variable to its command line.
            subject.artefacts = _rebuilt(subject, {"NVCC_APPEND_FLAGS": "-lineinfo"}, [])
        for tool in wanted:
            on_stage(StageEvent(stage="sanitize", status="progress", detail=tool))

            def script(folder: str, wrapped: bool, tool: str = tool) -> str:
                return sanitizer.script(tool, folder)

            with subject.under(script, sanitizer.binds(), "sanitizer", job.calls, CALLS, load=CALLS) as ran:
                log = ran.read(LOG)
                if "COMPUTE-SANITIZER" not in log:
                    found.missing[tool] = f"it did not run: {_why(ran, log)}"
                    continue
                faults = sanitizer_report.gpu_faults(log, tool)
                if ran.failure is not None and not faults:
                    found.missing[tool] = f"it did not finish: {_why(ran, log)}"
                    continue
                found.ran.append(tool)
                found.faults += faults
                if ran.failure is not None:
                    found.warnings.append(f"{tool}: the call ended early: {redacted(ran.failure.message)[:200]}")
                if sum(fault.count for fault in faults) >= SHOWN:
                    found.warnings.append(f"{tool}: only the first {SHOWN} findings were written")


def _on_cpu(job: SanitizeJob, pool: Pool, data_dir: Path, on_stage: OnStage, wanted: list[SanitizerTool], found: Sanitized) -> None:
    sanitizer, why = find_address_sanitizer()
    if job.program_source is None:
        why = "the reference has no C++ of its own; give a program"
    if why or sanitizer is None:
        found.missing |= dict.fromkeys(wanted, why)
        return
    found.tool_version = sanitizer.version
    with watched(job, pool, data_dir, on_stage, "check") as subject:
        subject.artefacts = _with_checks(subject, sanitizer)
        on_stage(StageEvent(stage="sanitize", status="progress", detail=" and ".join(wanted)))

        def script(folder: str, wrapped: bool) -> str:
            return sanitizer.script(folder)

        with subject.under(script, [], "sanitizer", job.calls, CALLS, load=CALLS) as ran:
            log = "\n".join(ran.read(path.name) for path in sorted(ran.folder.iterdir()) if path.name.startswith(LOG))
            faults = [fault for fault in sanitizer_report.cpu_faults(f"{log}\n{ran.printed}") if fault.tool in wanted]
            if ran.failure is not None and not faults:
                found.missing |= dict.fromkeys(wanted, f"it did not finish: {_why(ran, log)}")
                return
            found.ran += wanted
            found.faults += faults
            if ran.failure is not None:
                found.warnings.append(f"the call ended early: {redacted(ran.failure.message)[:200]}")


def _with_checks(subject: Subject, sanitizer: AddressSanitizer) -> Artefacts:
    """Returns the program's libraries, compiled through wrapper commands that precede g++ on the builder's PATH."""
    folder = Path(tempfile.mkdtemp(prefix="stitch-compilers-"))
    folder.chmod(0o755)
    try:
        sanitizer.write_compilers(folder)
        inside = INSIDE_COMPILERS if bubblewrap() else str(folder)
        variables = {"PATH": f"{inside}:/usr/local/bin:/usr/bin:/bin", "CXX": f"{inside}/g++"}
        prefix = ["/bin/sh", "-c", sanitizer.builder_script(), "sh"]
        return _rebuilt(subject, variables, [Bind(str(folder), inside)], prefix)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _rebuilt(subject: Subject, variables: dict[str, str], binds: list[Bind], prefix: Sequence[str] = ()) -> Artefacts:
    """Builds the program again. The result is never stored, because the store holds only libraries that are measured."""
    pool = subject.pool
    party = pool.spawn("builder", prefix=prefix, binds=binds)
    with pool.lock:
        pool.busy.append(party)
    try:
        party.become("builder", subject.job.precision, subject.job.mode)
        message: dict[str, Any] = {
            "source": subject.job.program_source,
            "variables": {**pool.device.variables("builder"), **variables},
            "headers": "",
            "artefacts": [],
            "requests": [one.request for one in subject.artefacts.later] if subject.artefacts is not None else [],
        }
        frame = party.ask("build", message, pool.limits.build, max_raw=MAX_ARTEFACTS)
        index = checked_index(frame.message.get("artefacts"), len(frame.raw))
        if not index:
            failure = frame.message.get("failure")
            said = str(failure.get("message", "")) if isinstance(failure, dict) else ""
            raise DeviceError(f"the program builds no library that can be checked{': ' + last_lines(said) if said else ''}")
        return Artefacts(index, frame.raw, 0.0, checked_asked(frame.message.get("asked")))
    except ValueError as error:
        raise DeviceError(f"the program's build for checking failed: {error}") from None
    finally:
        pool.give_back(party)


def _why(ran: Ran, log: str) -> str:
    for mark, sentence in (
        ("Device not supported", "this GPU, or the virtual machine around it, does not let compute-sanitizer instrument kernels"),
        ("out of memory", "the checks need more GPU memory than is free"),
    ):
        if mark in log or mark in ran.printed:
            return sentence
    if ran.failure is not None and ran.failure.kind == "timed_out":
        return f"it did not finish within {CALLS:g} s"
    errors = [line for line in log.splitlines() if "Error:" in line or "ERROR" in line]
    said = last_lines("\n".join(errors)) or last_lines(ran.printed) or (redacted(ran.failure.message) if ran.failure else "")
    return said[:300] or "it said nothing"
