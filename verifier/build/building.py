"""Builds one program in a separate thread. Meanwhile, the reference can draw inputs and compute the oracle."""

from __future__ import annotations

import ast
import re
import threading
import time
from typing import Any

from verifier.build.artefacts import Artefacts, checked_asked, checked_index
from verifier.build.headers import Headers
from verifier.build.raw import raw_requests
from verifier.build.raw_build import RawBuild
from verifier.build.store import Store, compiler_problems, trimmed
from verifier.channel import MAX_ARTEFACTS, Frame
from verifier.devices.base import Device
from verifier.judge.asking import Party
from verifier.judge.endings import hint
from verifier.judge.party_failure import PartyFailure
from verifier.judge.pool import Cancelled, Pool
from verifier.program import Program
from verifier.report import BuildInfo, Status
from verifier.source import Problem

_COMPILER = re.compile(r"'(?:\S*/)?(?:nvcc|g\+\+|c\+\+|gcc|ninja)'")
_WITHOUT_GPU = ("No CUDA GPUs", "NVIDIA driver", "CUDA driver", "libcuda", "CUDA error", "CUDA_ERROR", "0 active drivers", "no CUDA-")
_ASKS = {"is_available", "device_count", "current_device", "get_device_name", "get_device_capability", "get_device_properties"}  # of torch.cuda
MAX_KERNELS = 64  # maximum number of kernels in the report
GRACE = 2.0  # time in seconds that the reference has to finish a request after a failed build


class BuildFailed(Exception):
    """The program could not be built. `info` and `problems` go into the report."""

    def __init__(self, status: Status, message: str, info: BuildInfo | None = None, problems: list[Problem] | None = None):
        super().__init__(message)
        self.status = status
        self.message = message
        self.info = info
        self.problems = problems or []


class Building:
    """Starts the build immediately. A party dies with the thread that spawned it, so the judge takes the builder from the pool in its own thread.
    The caller must call `close` afterwards. `begun` is the build of the program's raw kernels if it has already started."""

    def __init__(self, pool: Pool, store: Store, program: Program, headers: Headers | None = None, begun: RawBuild | None = None):
        self.pool = pool
        self.headers = headers
        self.store = store
        self.program = program
        self.seconds = 0.0  # duration of the stage, including concurrent work
        self.done = threading.Event()
        self._artefacts: Artefacts | None = None
        self._info: BuildInfo | None = None
        self._error: BaseException | None = None
        self._builder: Party | None = None
        self._watched: Party | None = None
        self._begin = time.monotonic()
        known = store.get(program.sha)
        if known is not None:
            self._artefacts = known
            self._info = BuildInfo(seconds=known.seconds, cached=True, resources=self._resources(known))
            self._end()
            return
        self._missing = pool.device.missing_compiler()
        requests = raw_requests(ast.parse(program.source))
        self._raw = begun if begun is not None and begun.requests == requests else RawBuild(pool, requests) if requests else None
        self._builder = pool.start("builder")
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def watch(self, party: Party | None) -> None:
        """Registers the party that works concurrently with the build. If the build fails and this party does not finish its request within `GRACE`,
        both the party and the request are killed."""
        self._watched = party

    def raise_failure(self) -> None:
        """Raises `BuildFailed` (or `Cancelled`) if the build has already failed."""
        if self._error is not None:
            raise self._error

    def result(self) -> tuple[Artefacts, BuildInfo]:
        """Waits for the build. Raises `BuildFailed`."""
        with self.pool.gate.idle():
            self.done.wait()
        self.raise_failure()
        assert self._artefacts is not None and self._info is not None
        return self._artefacts, self._info

    def close(self) -> None:
        """Stops whatever is still running."""
        self._watched = None
        if self._builder is not None:
            self._builder.spawned.kill()
            if self._raw is not None:
                self._raw.close()
            self._thread.join(timeout=10)
            self.pool.dismiss(self._builder)
            self._builder = None

    # Code that runs in the thread

    def _work(self) -> None:
        try:
            self._artefacts, self._info = self._ask()
        except BaseException as error:
            self._error = error
        self._end()
        if self._error is not None:
            deadline = time.monotonic() + GRACE
            while self._watched is not None and time.monotonic() < deadline:
                time.sleep(0.02)
            party = self._watched
            if party is not None:
                party.spawned.kill()

    def _end(self) -> None:
        self.seconds = round(time.monotonic() - self._begin, 4)
        self.done.set()

    def _ask(self) -> tuple[Artefacts, BuildInfo]:
        builder, device = self._builder, self.pool.device
        assert builder is not None
        try:
            builder.become("builder")  # imports modules while the raw kernels are still being compiled
            raw = self._raw.result() if self._raw is not None else Artefacts([], b"", 0.0)
            headers = self.headers.shown if self.headers is not None else ""
            request = {"source": self.program.source, "variables": device.variables("builder"), "headers": headers, "artefacts": raw.index}
            frame = builder.ask("build", request, self.pool.limits.build, raw=raw.data, max_raw=MAX_ARTEFACTS)
        except PartyFailure as failure:
            if self.pool.cancelled:
                raise Cancelled from None
            if failure.request in ("start", "role"):
                raise  # not the program's fault
            status: Status = "timed_out" if failure.kind == "timed_out" else "crashed"
            raise BuildFailed(status, f"while the program was built, {failure.message}") from None
        artefacts, info = self._taken(frame, raw.seconds)
        if raw.index:
            info.notes.append(f"{len(raw.index)} raw librar{'y' if len(raw.index) == 1 else 'ies'}: compiled before the program was imported")
        if self.headers is not None:
            self.headers.want(frame.message.get("wanted"))
        failed = frame.message.get("failure")
        if isinstance(failed, dict) and not needs_gpu(failed, device, self.program.source, artefacts):
            raise failure_of(failed, builder.spawned.text(), self._missing, info, self.program.source)
        info.resources = self._resources(artefacts)
        self.store.put(self.program.sha, artefacts)
        return artefacts, info

    def _resources(self, artefacts: Artefacts) -> list[dict[str, int | float | str]]:
        """Reads each kernel's registers, spills, shared memory and stack from the machine code."""
        return rows(artefacts, self.pool.device) if self.pool.device.kind == "cuda" else []

    def _taken(self, frame: Frame, before: float) -> tuple[Artefacts, BuildInfo]:
        """Returns the builder's libraries if its description of them is valid. `before` is the time in seconds that the raw kernels took, which were
        compiled before the builder imported the program."""
        try:
            index = checked_index(frame.message.get("artefacts"), len(frame.raw))
            asked = checked_asked(frame.message.get("asked"))
        except ValueError as error:
            raise BuildFailed("crashed", str(error)) from None
        seconds = frame.message.get("seconds")
        artefacts = Artefacts(index, frame.raw, round(before + (float(seconds) if isinstance(seconds, (int, float)) else 0.0), 3), asked)
        notes = frame.message.get("notes")
        kept = [note[:300] for note in notes[:32] if isinstance(note, str)] if isinstance(notes, list) else []
        return artefacts, BuildInfo(seconds=artefacts.seconds, cached=False, notes=kept)


def failure_of(failure: dict[str, Any], printed: str, missing: str, info: BuildInfo, source: str) -> BuildFailed:
    """Explains an exception that the program raised in the builder: either compiler errors with the program's lines, or a failed import."""
    text = str(failure.get("message", ""))
    line = failure.get("line") if isinstance(failure.get("line"), int) else None
    compiling = _compiling(failure)
    if compiling and missing and ("FileNotFoundError" in str(failure.get("class")) or "No such file" in text):
        return BuildFailed("infrastructure_error", missing, info)
    output = trimmed(text if "error" in text.lower() else text + "\n" + printed) if compiling else text
    info.compiler_output = output
    if not compiling:
        where = f"line {line}: " if line else ""
        if failure.get("class") == "RequestError":
            return BuildFailed("build_failed", where + text, info)
        said = text[:400] + hint(str(failure.get("class")), text)
        return BuildFailed("build_failed", f"the program cannot be imported: {where}{failure.get('class')}: {said}", info)
    problems = compiler_problems(output, source)
    first = problems[0] if problems else None
    where = f"line {first.line or line}: " if first and (first.line or line) else f"line {line}: " if line else ""
    message = f"{where}{first.message if first else output.splitlines()[0] if output else 'the compiler failed'}"
    return BuildFailed("build_failed", message, info, problems)


def _compiling(failure: dict[str, Any]) -> bool:
    """Returns whether a compiler failed, or is missing."""
    text = str(failure.get("message", ""))
    no_compiler = failure.get("class") == "FileNotFoundError" and _COMPILER.search(text) is not None
    return "failed:\n" in text or "Error building extension" in text or failure.get("class") == "CalledProcessError" or no_compiler


def needs_gpu(failure: dict[str, Any], device: Device, source: str, artefacts: Artefacts) -> bool:
    """Returns whether the program touches a GPU during import. The builder has no GPU, so such a program is judged in the runner. A program may also
    ask torch for a GPU and fail in words of its own (`assert torch.cuda.is_available(), "Hopper only"`), so any failure counts that no compiler
    caused."""
    if device.kind != "cuda":
        return False
    text = f"{failure.get('class')}: {failure.get('message')}"
    return any(phrase in text for phrase in _WITHOUT_GPU) or (not artefacts.failed and not _compiling(failure) and _asks_for_gpu(source))


def _asks_for_gpu(source: str) -> bool:
    found = (getattr(node, "attr", getattr(node, "id", getattr(node, "name", ""))) for node in ast.walk(ast.parse(source)))  # names and imports
    return any(name in _ASKS for name in found)


def rows(artefacts: Artefacts, device: Device) -> list[dict[str, int | float | str]]:
    from verifier.profiling.binaries.resource_rows import compiled_kernels  # a judge starts without it; only built kernels need it

    arch = device.variables("builder").get("STITCH_CUDA_ARCH", "")
    return [kernel.row() for kernel in compiled_kernels(artefacts, arch)[:MAX_KERNELS]]


def resources_of_cubins(index: object, data: bytes, device: Device) -> list[dict[str, int | float | str]]:
    """Reads the resource usage of the Triton kernels that the runner reports as compiled. Raises `ValueError` if its description is invalid."""
    sizes = [pair[1] if isinstance(pair, list) and len(pair) == 2 else -1 for pair in index] if isinstance(index, list) else [-1]
    if any(not isinstance(size, int) or isinstance(size, bool) or size < 0 for size in sizes) or sum(sizes) != len(data):
        raise ValueError("the runner's list of cubins is malformed")
    return [{**row, "told_by": "runner"} for row in rows(Artefacts([("triton", size) for size in sizes], data, 0.0), device)]
