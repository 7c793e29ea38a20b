"""Times calls of trusted programs in this process, with the clock of the verifier's parties.

`verifier.shim` flushes the L2 and keeps the GPU at full clock speed before a call, starts its clock, and stops it after a sync of the whole device.
This process writes to itself, in advance, the bytes that a party would receive from the judge.
"""

from __future__ import annotations

import gc
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from verifier.devices.base import GO, REFRESH, SEEN, Device
from verifier.devices.opening import open_device

WARM_MS = 0.3  # the GPU is never idle for long here; the verifier's 3 ms also cover the time in which inputs are drawn
DISPATCHES = 3  # brings torch's launch path back into the host's caches, as in the verifier's party
ANSWER_BYTES = 9  # "f" followed by eight bytes of nanoseconds


class DeviceLost(RuntimeError):
    """Raised if this process can no longer use its device; another process may be able to."""


class Stopwatch:
    """Times calls on one device, which is opened in this process. `call` returns the function's result and its nanoseconds."""

    def __init__(self, device: str, data_dir: Path):
        self.judge: Device = open_device(device, data_dir)
        self.cuda = self.judge.kind == "cuda"
        self.torch_device = self.judge.torch_device
        self._ours, theirs = socket.socketpair()
        self._theirs = theirs
        config = self.judge.config()
        if self.cuda:
            from verifier.devices import cuda_driver
            from verifier.shim.clock import Clock, Native

            if config.get("processors"):
                os.sched_setaffinity(0, config["processors"])
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
            torch.backends.cudnn.benchmark = False
            torch.set_num_threads(4)
            torch.cuda.set_device(self.torch_device)  # a launch through ctypes uses the current device, which must be the stream's device
            self._tiny = torch.zeros(64, device=self.torch_device)
            context = cuda_driver.use_primary_context(self.judge.index)
            self._clock = Clock(Native(config["clock_host"]).on_cuda(context, flush_bytes=int(config["flush_bytes"]), warm_ms=WARM_MS))
        else:
            from verifier.devices.cpu_party import CpuPartyDevice

            self._party = CpuPartyDevice(config)
            self._party.configure("fp32-strict")

    def call(self, function: Callable[[], Any]) -> tuple[Any, int]:
        self._ours.send(REFRESH + GO + (SEEN if self.judge.says_seen else b""))
        fd = self._theirs.fileno()
        if self.cuda:
            for _ in range(DISPATCHES):
                torch.add(self._tiny, 1)
            self._clock.prepare()
            for _ in range(DISPATCHES):
                torch.add(self._tiny, 1)
            self._clock.sync()
            self._clock.go(fd)
            result = function()
            nanoseconds = self._clock.done(fd)
        else:
            self.judge.flush_caches()
            self._party.go(fd)
            result = function()
            nanoseconds = self._party.done(fd)
        self._ours.recv(ANSWER_BYTES, socket.MSG_WAITALL)
        return result, nanoseconds

    def sync(self) -> None:
        if self.cuda:
            self._clock.sync()

    def check(self) -> None:
        """Raises `DeviceLost` if a kernel has left the GPU unusable for this process."""
        if self.cuda:
            try:
                torch.zeros(8, device=self.torch_device).sum().item()
            except RuntimeError as error:
                raise DeviceLost(str(error).splitlines()[0]) from None

    def empty(self) -> None:
        """Frees the memory of deleted models by running the garbage collector, because a captured graph stays alive until then."""
        gc.collect()
        if self.cuda:
            torch.cuda.empty_cache()

    def close(self) -> None:
        self._ours.close()
        self._theirs.close()
        self.judge.close()
