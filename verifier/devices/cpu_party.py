"""The party's half of the CPU: shared memory from the judge, and a clock in a native shim."""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import sys
from time import perf_counter, perf_counter_ns  # bound now: a program may replace those of the module
from typing import Any

import torch

from verifier.devices.base import REFRESHED, PartyDevice

_I64 = struct.Struct("<q")
AWAKE_SECONDS = 0.0005  # no longer: a program that rewrites this process could compute meanwhile; the judge's flush has kept processors awake


class CpuPartyDevice(PartyDevice):
    torch_device = "cpu"

    def __init__(self, config: dict[str, Any]):
        self.threads = int(config["threads"])
        path = next((config[key] for key in ("shim", "shim_host") if config.get(key) and os.path.exists(config[key])), None)
        self._scratch = torch.zeros(self.threads * 40_000, dtype=torch.uint8)  # just enough that torch shares it among its threads
        if path is None:
            # Saved now, before any stranger's source can replace them.
            self._read, self._write, self._now, self._begin = os.read, os.write, perf_counter_ns, 0
            self._inputs, self._refreshed, self._go, self._done = self._plain_inputs, self._plain_refreshed, self._plain_go, self._plain_done
        else:
            shim = ctypes.PyDLL(path)  # keeps the interpreter's lock: no Python thread that a program left behind runs while the party waits
            for function in (shim.stitch_inputs, shim.stitch_refreshed, shim.stitch_go):
                function.argtypes = [ctypes.c_int]
            shim.stitch_done.argtypes = [ctypes.c_int]
            shim.stitch_done.restype = ctypes.c_int64
            self._inputs, self._refreshed, self._go, self._done = shim.stitch_inputs, shim.stitch_refreshed, shim.stitch_go, shim.stitch_done

    def attach(self, handle: dict[str, Any], fds: list[int]) -> torch.Tensor:
        memory = mmap.mmap(fds[0], int(handle["nbytes"]), mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        for fd in fds:
            os.close(fd)
        return torch.frombuffer(memory, dtype=torch.uint8)

    def configure(self, precision: str) -> None:
        """A CPU has no TF32 (policy `tf32` computes in fp32, within the wider bound); bf16 and fp16 are types of tensors."""
        torch.set_num_threads(self.threads)

    def _awake(self) -> None:
        """All threads at work for a moment, on a few kilobytes: a processor that slept (above all a virtual one, which its host has put
        aside) takes up to 8 ms to come back, and that would be charged to the call."""
        end = perf_counter() + AWAKE_SECONDS
        while perf_counter() < end:
            self._scratch.add_(1)

    def sync(self) -> None:
        """Nothing is asynchronous on the CPU."""

    def go(self, fd: int) -> None:
        if self._inputs(fd) not in (0, None):
            raise OSError("the judge is gone")
        self._awake()
        if self._refreshed(fd) not in (0, None) or self._go(fd) not in (0, None):
            raise OSError("the judge is gone")

    def done(self, fd: int) -> int:
        return int(self._done(fd))

    def _plain_inputs(self, fd: int) -> None:
        if not self._read(fd, 1):
            raise OSError("the judge is gone")

    def _plain_refreshed(self, fd: int) -> None:
        self._write(fd, REFRESHED)

    def _plain_go(self, fd: int) -> None:
        if not self._read(fd, 1):
            raise OSError("the judge is gone")
        self._begin = self._now()

    def _plain_done(self, fd: int) -> int:
        elapsed = self._now() - self._begin
        self._write(fd, _I64.pack(elapsed))
        self._read(fd, 1)
        return elapsed

    def peak_bytes(self, reset: bool = False) -> int | None:
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
