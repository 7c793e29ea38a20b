"""Builds and controls the native sampler (`sampler.c`)."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from collections.abc import Mapping as Dictionary
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verifier.hashes import sha256
from verifier.integrity.sampling.mapped import Kind, Mapping
from verifier.shim.clock import SharedPage, running

SOURCE = Path(__file__).with_name("sampler.c")
ROOM = 4096  # maximum number of samples per call
RETURN = {"x86_64": b"\xc3", "aarch64": b"\xc0\x03\x5f\xd6"}  # the instruction that returns from a function
READY_SECONDS = 1.0


class SamplerError(RuntimeError):
    """Raised when this host does not let the judge inspect a process or write to it. The message gives the reason."""


class _Range(ctypes.Structure):
    _fields_ = [("begin", ctypes.c_uint64), ("end", ctypes.c_uint64), ("kind", ctypes.c_int64)]


class _Sample(ctypes.Structure):
    _fields_ = [("moment", ctypes.c_int64), ("at", ctypes.c_int64), ("address", ctypes.c_uint64), ("kind", ctypes.c_int64)]


class _Glance(ctypes.Structure):
    _fields_ = [("go", ctypes.c_uint32), ("delay_ns", ctypes.c_int64)]


class _Glances(ctypes.Structure):
    _fields_ = [
        ("begun", ctypes.c_void_p),
        ("party", ctypes.c_void_p),
        ("bell", ctypes.c_int),
        ("calls", ctypes.POINTER(_Glance)),
        ("count", ctypes.c_long),
    ]


class _Watch(ctypes.Structure):
    _fields_ = [
        ("pid", ctypes.c_int),
        ("ranges", ctypes.POINTER(_Range)),
        ("count", ctypes.c_long),
        ("mean_ns", ctypes.c_int64),
        ("seed", ctypes.c_uint64),
        ("samples", ctypes.POINTER(_Sample)),
        ("room", ctypes.c_long),
        ("taken", ctypes.c_long),
        ("moments", ctypes.c_long),
        ("error", ctypes.c_int),
        ("ready", ctypes.c_int),
        ("stop", ctypes.c_int),
    ]


@dataclass(frozen=True)
class Sample:
    """The position of one thread at one moment; `at` is that moment in ns on the clock of the series."""

    moment: int
    address: int
    kind: Kind
    at: int = 0


def build_sampler(folder: Path) -> Path:
    """Returns the shared library, and compiles it first if it is missing. Raises `SamplerError`."""
    if platform.machine() not in RETURN:
        raise SamplerError(f"processes cannot be inspected on {platform.machine()}")
    library = folder / f"sampler-{sha256(SOURCE.read_text())[:16]}.so"
    if library.exists():
        return library
    compiler = shutil.which("gcc") or shutil.which("g++") or shutil.which("cc")
    if compiler is None:
        raise SamplerError("inspecting a process requires a C compiler: apt-get install g++")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        built = Path(scratch) / "sampler.so"
        command = [compiler, "-x", "c", "-O2", "-shared", "-fPIC", str(SOURCE), "-o", str(built), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            raise SamplerError(f"the sampler does not compile: {done.stderr[-2000:]}")
        os.replace(built, library)
    return library


class Sampler:
    """While open, samples process `pid` from a separate thread, because ptrace accepts requests only from the thread that attached."""

    def __init__(self, library: Path, pid: int, seed: int):
        self._library = ctypes.CDLL(str(library))
        self._library.stitch_watch.argtypes, self._library.stitch_watch.restype = [ctypes.POINTER(_Watch)], None
        self._library.stitch_glance.argtypes = [ctypes.POINTER(_Watch), ctypes.POINTER(_Glances)]
        self._library.stitch_glance.restype = None
        poke = self._library.stitch_poke
        poke.argtypes = [ctypes.c_int, ctypes.c_uint64, ctypes.c_char_p, ctypes.c_long, ctypes.c_char_p]
        poke.restype = ctypes.c_int
        self.pid = pid
        self.seed = seed
        self.mean_ns = 300_000
        self.error = 0  # errno of the first request that was refused
        self.seen: list[Sample] = []  # samples from the most recent call during which the sampler was open
        self._ranges: ctypes.Array[_Range] = (_Range * 0)()
        self._samples = (_Sample * ROOM)()
        self._watch: _Watch | None = None
        self._thread: threading.Thread | None = None

    def know(self, mappings: list[Mapping]) -> None:
        """Passes the mappings to the sampler, sorted by address."""
        self._ranges = (_Range * len(mappings))(*[_Range(one.begin, one.end, one.kind) for one in mappings])

    def __enter__(self) -> Sampler:
        self.begin()
        return self

    def __exit__(self, *_: object) -> None:
        self.seen = self.end()

    def begin(self) -> None:
        self._begin(self._library.stitch_watch)

    @contextlib.contextmanager
    def glances(self, page: SharedPage, delays: Dictionary[int, int]) -> Iterator[int]:
        """Inspects the process once in each of the calls in `delays`, in a series through `page`. Each delay is in nanoseconds after the start of its
        call. Yields the event that the leader of the series signals before each of these calls."""
        bell = os.eventfd(0, os.EFD_CLOEXEC)
        calls = (_Glance * len(delays))(*[_Glance(running(call), delays[call]) for call in sorted(delays)])
        try:
            self._begin(self._library.stitch_glance, ctypes.byref(_Glances(*page.words, bell, calls, len(delays))))
            yield bell
        finally:
            if self._watch is not None:
                self._watch.stop = 1
            os.eventfd_write(bell, 1)
            self.seen = self.end()
            os.close(bell)

    def _begin(self, function: Any, *arguments: Any) -> None:
        self.seed = (self.seed * 6364136223846793005 + 1442695040888963407) & (2**64 - 1)
        watch = self._watch = _Watch(self.pid, self._ranges, len(self._ranges), self.mean_ns, self.seed, self._samples, ROOM, 0, 0, 0, 0, 0)
        self._thread = threading.Thread(target=function, args=[ctypes.byref(watch), *arguments], daemon=True)
        self._thread.start()
        until = time.monotonic() + READY_SECONDS
        while not watch.ready and time.monotonic() < until:
            time.sleep(0)

    def end(self) -> list[Sample]:
        """Returns the samples taken since `begin`."""
        watch, thread = self._watch, self._thread
        if watch is None or thread is None:
            return []
        watch.stop = 1
        thread.join()
        self._watch = self._thread = None
        self.error = self.error or watch.error
        return [Sample(one.moment, one.address, Kind(one.kind), one.at) for one in self._samples[: watch.taken]]

    def write(self, address: int, code: bytes) -> bytes:
        """Writes to the code of the process, which must be waiting for a request, and returns the previous bytes. Raises `SamplerError`."""
        before = ctypes.create_string_buffer(8)
        failures: list[int] = []
        thread = threading.Thread(target=lambda: failures.append(self._library.stitch_poke(self.pid, address, code, len(code), before)))
        thread.start()
        thread.join()
        if failures[0]:
            raise SamplerError(f"code cannot be written into the process: {os.strerror(failures[0])}")
        return before.raw[: len(code)]
