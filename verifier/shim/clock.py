"""Builds the native clock (`clock.c`, `series.c`) and drives it: a party's half, and the judge's half of a series of calls."""

from __future__ import annotations

import ctypes
import mmap
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verifier.hashes import sha256

HERE = Path(__file__).parent
SOURCES, HEADERS = ("clock.c", "series.c"), ("clock.h",)
PAGE_BYTES, LINE = 4096, 64
STAMPS = 8
AWAKE_NS = 500_000  # kept short, because a program that rewrites this process could compute then; the judge's flush has kept processors awake


class ClockError(RuntimeError):
    """Raised if the clock cannot be built, or if the device failed while the clock ran; `code` is the driver's code, or 0 if there is none."""

    def __init__(self, message: str, code: int = 0):
        super().__init__(message)
        self.code = code


def build_clock(folder: Path) -> Path:
    """Returns the shared library, and compiles it first if it is missing. Raises `ClockError`, whose message says what to install."""
    text = "".join((HERE / name).read_text() for name in (*SOURCES, *HEADERS))
    library = folder / f"clock-{sha256(text)[:16]}.so"
    if library.exists():
        return library
    compiler = shutil.which("gcc") or shutil.which("g++") or shutil.which("cc")
    if compiler is None:
        raise ClockError("the native clock needs a C compiler: apt-get install g++")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        built = Path(scratch) / "clock.so"
        command = [compiler, "-x", "c", "-O2", "-shared", "-fPIC", *(str(HERE / name) for name in SOURCES), "-o", str(built), "-ldl"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            raise ClockError(f"the native clock does not compile: {done.stderr[-2000:]}")
        os.replace(built, library)
    return library


class Native:
    """The library's functions with their types. Functions that wait for the judge keep the interpreter's lock (`PyDLL`), so that no thread that a
    program has left behind can run Python in the meantime. `stitch_ended` and `stitch_sync` wait for the program's own work and release the lock."""

    def __init__(self, library: Path | str):
        waiting, running = ctypes.PyDLL(str(library)), ctypes.CDLL(str(library))

        def take(dll: Any, name: str, result: Any, *arguments: Any) -> Any:
            function = getattr(dll, name)
            function.restype, function.argtypes = result, list(arguments)
            return function

        size, word, fd = ctypes.c_size_t, ctypes.c_uint64, ctypes.c_int
        self.inputs, self.refreshed, self.go = (take(waiting, name, ctypes.c_int, fd) for name in ("stitch_inputs", "stitch_refreshed", "stitch_go"))
        self.prepare = take(running, "stitch_prepare", None)
        self.done = take(running, "stitch_done", ctypes.c_int64, fd)
        self.sync = take(running, "stitch_sync", ctypes.c_int)
        self.use_cuda = take(running, "stitch_use_cuda", ctypes.c_int, ctypes.c_void_p, size, ctypes.c_int64)
        self.use_threads = take(running, "stitch_use_threads", None, ctypes.c_uint)
        self.use_flush = take(running, "stitch_use_flush", ctypes.c_int, size)
        self.awake = take(waiting, "stitch_awake", None, ctypes.c_int64)
        self.has_masks = take(running, "stitch_has_masks", ctypes.c_int)
        self.mask = take(running, "stitch_mask", ctypes.c_int, word, size, word, word)
        self.page = take(running, "stitch_page", ctypes.c_int, fd)
        self.wait = take(waiting, "stitch_await", ctypes.c_int, fd, ctypes.c_uint32, word, size)
        self.ended = take(running, "stitch_ended", ctypes.c_int64)
        self.copied, self.abort = (take(waiting, name, None) for name in ("stitch_copied", "stitch_abort"))
        self.begin = take(running, "stitch_begin", None, ctypes.c_void_p)
        pointer, count = ctypes.c_void_p, ctypes.c_int
        arguments = (pointer, fd, ctypes.c_uint32, pointer, pointer, count, pointer, ctypes.c_int, ctypes.c_int64, fd, word, word)
        self.lead = take(running, "stitch_lead", ctypes.c_int, *arguments)

    def on_cuda(self, context: int, flush_bytes: int = 0, warm_ms: float = 0.0) -> Native:
        """Sets up the clock on CUDA. `context` is the CUDA context that torch uses; `flush_bytes` is at least twice the size of its L2 cache (0: this
        process times nothing); `warm_ms` is how long `prepare` keeps the GPU busy. Raises `ClockError`."""
        if self.use_cuda(context, flush_bytes, int(warm_ms * 1e6)) != 0:
            raise ClockError("the CUDA driver (libcuda.so.1) lacks a function of the clock, or there is no memory to flush the L2")
        return self


class Clock:
    """A party's half. A single call uses `prepare`, then `go` before the call and `done` after it. A series uses `open_page` once and then, for each
    call, `wait`, the call itself, `ended` and `copied`; if a call raises an exception, it uses `abort`. See `clock.c` and `series.c`."""

    def __init__(self, native: Native):
        self._native = native
        self.series = bool(native.has_masks())  # whether the judge may request a series

    def prepare(self) -> None:
        """Brings the device into the same state before every call: idle, in this process's context, at full clocks, with no data from the last call
        in its L2 cache."""
        self._native.prepare()

    def go(self, fd: int, awake: bool = False) -> None:
        """Starts the clock when the judge sends the start signal. With `awake`, all processors work for a moment before the call."""
        if self._native.inputs(fd) != 0:
            raise ClockError("the judge is gone")
        if awake:
            self._native.awake(AWAKE_NS)
        if self._native.refreshed(fd) != 0 or self._native.go(fd) != 0:
            raise ClockError("the judge is gone")

    def done(self, fd: int) -> int:
        """Returns the nanoseconds since `go`. Raises `ClockError` if the device failed; in that case, a negative number has informed the judge."""
        return self._checked(int(self._native.done(fd)))

    def open_page(self, descriptor: int) -> None:
        if self._native.page(descriptor) != 0:
            raise ClockError("the page of a series cannot be mapped")

    def wait(self, fd: int, number: int, place: int, nbytes: int) -> None:
        """Waits for call `number` of the series. When it returns, the clock has started, the call's inputs (`nbytes` from address `place`) are
        readable, and caches are cold."""
        code = int(self._native.wait(fd, number, place, nbytes))
        if code:
            raise ClockError("the judge is gone" if code < 0 else f"the device failed before the call (CUDA error {code})", max(code, 0))

    def ended(self) -> int:
        """Waits for the device, stops the clock and returns the nanoseconds."""
        return self._checked(int(self._native.ended()))

    def copied(self) -> None:
        self._native.copied()

    def abort(self) -> None:
        self._native.abort()

    def sync(self) -> None:
        code = int(self._native.sync())
        if code:
            raise ClockError(f"the device failed (CUDA error {code})", code)

    @staticmethod
    def _checked(value: int) -> int:
        if value < 0:
            raise ClockError(f"the device failed during the call (CUDA error {-value})", -value)
        return value


class SharedPage:
    """The judge's side of one party's page: `address`, and a `descriptor` to hand over."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("series", os.MFD_CLOEXEC)
        os.ftruncate(self.descriptor, PAGE_BYTES)
        self._memory = mmap.mmap(self.descriptor, PAGE_BYTES, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))

    @property
    def words(self) -> tuple[int, int]:
        """Returns the addresses of two words, both of which equal `running(c)` while call c runs: the call that has begun, and the party's step."""
        return self.address + 4 * LINE, self.address + LINE

    def close(self) -> None:
        """Closes the descriptor. The mapping lives as long as this object."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def running(call: int) -> int:
    return 4 * call + 2


@dataclass(frozen=True)
class Stamped:
    """The times of one call of a series, in nanoseconds."""

    judged: int  # from the start signal to the end, by the judge's clock
    own: int  # the same interval by the party's clock
    ahead: int  # from the key until the inputs were unmasked; on a GPU, until the caches were also flushed
    copied: int  # from the end until the outputs were copied
    between: int  # from the previous call's copy until the party waited for the key; 0 for the first
    queued: int  # how long the party's threads waited for a processor during this time
    began: int = 0  # the time of the start signal, by the judge's clock
    ended: int = 0  # the time of the end, by the same clock


class SeriesFailed(RuntimeError):
    """Raised if a series did not finish. `cause`: "message" (the party gives the reason on its socket, or has ended), "time", "turn"."""

    def __init__(self, cause: str):
        super().__init__(cause)
        self.cause = cause


def _bits(numbers: Sequence[int]) -> int:
    return sum(1 << number for number in numbers)


_CAUSES = {1: "message", 2: "time", 3: "turn"}


class Leader:
    """The judge's half of a series."""

    def __init__(self, native: Native, spins: bool):
        self._native = native
        self.spins = spins

    @property
    def works(self) -> bool:
        return bool(self._native.has_masks())

    def mask(self, place: int, nbytes: int, key: tuple[int, int]) -> None:
        """Masks bytes at a device address, in the order of torch's default stream. Raises `ClockError`."""
        code = int(self._native.mask(place, nbytes, *key))
        if code:
            raise ClockError(f"inputs cannot be masked (CUDA error {code})", code)

    def begin(self, page: int) -> None:
        """Resets the page before the party is asked for a series."""
        self._native.begin(page)

    def lead(
        self,
        page: int,
        fd: int,
        keys: Sequence[tuple[int, int]],
        seconds: float,
        threads: Sequence[int] = (),
        bell: int = -1,
        rung: Sequence[int] = (),
        warm: Sequence[int] = (),
    ) -> list[Stamped]:
        """Leads the party behind socket `fd` through as many calls as there are keys, within `seconds`. `threads` holds open `schedstat` files of the
        party's threads. `bell` is an event that is signalled shortly before each call whose number is in `rung`. Caches are not flushed before the
        calls whose numbers are in `warm`. Raises `SeriesFailed`."""
        count = len(keys)
        words = (ctypes.c_uint64 * (2 * count))(*(word for key in keys for word in key))
        stamps = (ctypes.c_int64 * (STAMPS * count))()
        files = (ctypes.c_int * len(threads))(*threads)
        addresses = (ctypes.addressof(words), ctypes.addressof(files), len(threads), ctypes.addressof(stamps))
        code = self._native.lead(page, fd, count, *addresses, int(self.spins), int(seconds * 1e9), bell, _bits(rung), _bits(warm))
        if code:
            raise SeriesFailed(_CAUSES[int(code)])
        rows = [stamps[at : at + STAMPS] for at in range(0, STAMPS * count, STAMPS)]
        before = [rows[0][0], *(row[5] for row in rows[:-1])]
        return [
            Stamped(row[4] - row[3], row[6], row[2] - row[1], row[5] - row[4], row[0] - last, row[7], row[3], row[4])
            for row, last in zip(rows, before, strict=True)
        ]
