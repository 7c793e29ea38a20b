"""The party's half of the CPU: shared memory from the judge, and a clock in a native shim."""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import sys
from collections.abc import Sequence
from time import perf_counter_ns  # bound now: a program may replace the module's functions
from typing import Any

import torch

from verifier.devices.base import REFRESHED, PartyDevice
from verifier.shim.clock import Clock, Native

LEAST_PAGES = 4  # minimum number of whole pages that show whether memory is in use: something else may occupy a single page by now
_I64 = struct.Struct("<q")


class CpuPartyDevice(PartyDevice):
    torch_device = "cpu"

    def __init__(self, config: dict[str, Any]):
        self.threads = int(config["threads"])
        libc = ctypes.CDLL(None)
        self._libc: Any = libc if hasattr(libc, "malloc_trim") and hasattr(libc, "mincore") else None  # glibc
        path = next((config[key] for key in ("shim", "shim_host") if config.get(key) and os.path.exists(config[key])), None)
        self._clock: Clock | None = None
        if path is None:
            # Saved now, before any untrusted source can replace them.
            self._read, self._write, self._now, self._begin = os.read, os.write, perf_counter_ns, 0
            return
        native = Native(path)
        native.use_threads(self.threads)  # torch's own function, called natively: a program may inject code into any operator
        native.use_flush(int(config["flush_bytes"]))
        self._clock = Clock(native)

    def attach(self, handle: dict[str, Any], fds: list[int]) -> torch.Tensor:
        memory = mmap.mmap(fds[0], int(handle["nbytes"]), mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        for fd in fds:
            os.close(fd)
        return torch.frombuffer(memory, dtype=torch.uint8)

    def configure(self, precision: str) -> None:
        """Sets the policy. A CPU has no TF32 (the `tf32` policy computes in fp32, with the wider bound); bf16 and fp16 are tensor types."""
        torch.set_num_threads(self.threads)

    def sync(self) -> None:
        """Does nothing, because nothing is asynchronous on the CPU."""

    @property
    def series(self) -> Clock | None:
        return self._clock

    def go(self, fd: int) -> None:
        if self._clock is not None:
            self._clock.go(fd, awake=True)
            return
        if not self._read(fd, 1):
            raise OSError("the judge is gone")
        self._write(fd, REFRESHED)
        if not self._read(fd, 1):
            raise OSError("the judge is gone")
        self._begin = self._now()

    def done(self, fd: int) -> int:
        if self._clock is not None:
            return self._clock.done(fd)
        elapsed = self._now() - self._begin
        self._write(fd, _I64.pack(elapsed))
        self._read(fd, 1)
        return elapsed

    def in_use(self, extents: Sequence[tuple[int, int]]) -> list[bool]:
        """Returns the unused memory of the C library to the system. Pages that are still resident are in use. Short ranges
        say nothing."""
        whole = [_pages(begin, end) for begin, end in extents]
        if self._libc is None or not any(count for _, count in whole):
            return [False] * len(extents)
        self._libc.malloc_trim(0)
        return [count > 0 and self._resident(first, count) for first, count in whole]

    def _resident(self, first: int, count: int) -> bool:
        pages = (ctypes.c_ubyte * count)()
        code = self._libc.mincore(ctypes.c_void_p(first), ctypes.c_size_t(count * mmap.PAGESIZE), pages)
        return code == 0 and all(page & 1 for page in pages)

    def peak_bytes(self, reset: bool = False) -> int | None:
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _pages(begin: int, end: int) -> tuple[int, int]:
    """Returns the address of the first whole page in a range, and the number of whole pages; zero if there are too few of them."""
    first = -(-begin // mmap.PAGESIZE)
    count = end // mmap.PAGESIZE - first
    return first * mmap.PAGESIZE, count if count >= LEAST_PAGES else 0
