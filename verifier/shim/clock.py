"""Builds and drives the native clock (`clock.c`)."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from verifier.hashes import sha256

SOURCE = Path(__file__).with_name("clock.c")


class ClockError(RuntimeError):
    """The clock cannot be built or the device failed while it ran; `code` is the driver's, 0 where there is none."""

    def __init__(self, message: str, code: int = 0):
        super().__init__(message)
        self.code = code


def build_clock(folder: Path) -> Path:
    """The shared library, compiled where it is not there yet. Raises `ClockError` with what to install."""
    source = SOURCE.read_text()
    library = folder / f"clock-{sha256(source)[:16]}.so"
    if library.exists():
        return library
    compiler = shutil.which("gcc") or shutil.which("g++") or shutil.which("cc")
    if compiler is None:
        raise ClockError("the native clock needs a C compiler: apt-get install g++")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        built = Path(scratch) / "clock.so"
        command = [compiler, "-x", "c", "-O2", "-shared", "-fPIC", str(SOURCE), "-o", str(built), "-ldl"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            raise ClockError(f"the native clock does not compile: {done.stderr[-2000:]}")
        os.replace(built, library)
    return library


class Clock:
    """`prepare`, then `go` and `done` around a timed call; see `clock.c`. `context` is the CUDA context that torch uses, null on the CPU;
    `flush_bytes` at least twice its L2, `warm_ms` how long `prepare` keeps the GPU busy."""

    def __init__(self, library: Path, context: int | None = None, flush_bytes: int = 0, warm_ms: float = 0.0):
        # PyDLL keeps the interpreter's lock: no thread that a program left behind runs Python while the party waits for the judge.
        waiting = ctypes.PyDLL(str(library))
        running = ctypes.CDLL(str(library))
        self._inputs, self._refreshed, self._go = waiting.stitch_inputs, waiting.stitch_refreshed, waiting.stitch_go
        for function in (self._inputs, self._refreshed, self._go):
            function.argtypes, function.restype = [ctypes.c_int], ctypes.c_int
        self._prepare = running.stitch_prepare
        self._prepare.argtypes, self._prepare.restype = [], None
        self._done = running.stitch_done
        self._done.argtypes, self._done.restype = [ctypes.c_int], ctypes.c_int64
        self._sync = running.stitch_sync
        self._sync.argtypes, self._sync.restype = [], ctypes.c_int
        if context is not None:
            running.stitch_use_cuda.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64]
            if running.stitch_use_cuda(context, flush_bytes, int(warm_ms * 1e6)) != 0:
                raise ClockError("the CUDA driver (libcuda.so.1) lacks a function of the clock, or there is no memory to flush the L2")

    def prepare(self) -> None:
        """The same state of the device before every call: idle, this process's, at speed, nothing of the last call in its L2."""
        self._prepare()

    def go(self, fd: int) -> None:
        if self._inputs(fd) != 0 or self._refreshed(fd) != 0 or self._go(fd) != 0:
            raise ClockError("the judge is gone")

    def done(self, fd: int) -> int:
        """Nanoseconds since `go`. Raises `ClockError` where the device failed; the judge has been told by a negative number."""
        value = int(self._done(fd))
        if value < 0:
            raise ClockError(f"the device failed during the call (CUDA error {-value})", -value)
        return value

    def sync(self) -> None:
        code = int(self._sync())
        if code:
            raise ClockError(f"the device failed (CUDA error {code})", code)
