"""The party's half of a CUDA device. It maps the judge's memory, applies the precision policy, and times calls with the native clock."""

from __future__ import annotations

import bisect
import os
from collections.abc import Sequence
from typing import Any

import torch

from verifier.devices import cuda_driver, cuda_shared
from verifier.devices.base import PartyDevice
from verifier.devices.cuda_driver import DeviceBytes
from verifier.shim.clock import Clock, ClockError, Native

DISPATCHES = 3  # if the host has slept since the last call, torch's launch path is no longer in its caches, which costs 100 us at the first launch
WARM_MS = 3.0  # an idle GPU lowers its clocks while the host draws new inputs between calls
KEPT_BYTES = 2 << 30
_memory_snapshot: Any = torch.cuda.memory_snapshot  # bound now: a program may replace it
SHORT = 0.3  # free share of the device's memory
_ERRORS = {
    2: "out of memory",
    700: "a kernel read or wrote an illegal memory address",
    701: "a kernel was launched with more resources than the device has",
    702: "a kernel was stopped by the driver's time limit",
    710: "a kernel stopped at an assertion",
    714: "a kernel ran an illegal instruction stream: hardware stack error",
    715: "a kernel ran an illegal instruction",
    716: "a kernel used a misaligned address",
    717: "a kernel used an address in the wrong memory space",
    718: "a kernel jumped to an invalid address",
    719: "a kernel failed while it ran",
}


class CudaPartyDevice(PartyDevice):
    torch_device = "cuda:0"  # the only GPU that a party can see

    def __init__(self, config: dict[str, Any]):
        self._shared: dict[int, int] = {}  # mappings created from a descriptor: address -> bytes
        torch.cuda.init()
        self._tiny = torch.zeros(64, device=self.torch_device)
        context = cuda_driver.use_primary_context(0)
        path = next(config[key] for key in ("clock", "clock_host") if os.path.exists(config[key]))
        self._clock = Clock(Native(path).on_cuda(context, flush_bytes=int(config["flush_bytes"]), warm_ms=WARM_MS))

    def attach(self, handle: dict[str, Any], fds: list[int]) -> torch.Tensor:
        try:
            if "shared" in handle:
                pointer = cuda_shared.attach(0, fds[0], int(handle["shared"]))
                self._shared[pointer] = int(handle["shared"])
            else:
                pointer = cuda_driver.import_memory(bytes.fromhex(handle["ipc"]))
        finally:
            for fd in fds:
                os.close(fd)
        return torch.as_tensor(DeviceBytes(pointer, int(handle["nbytes"])), device=self.torch_device)

    def detach(self, arena: torch.Tensor) -> None:
        torch.cuda.synchronize()
        if (size := self._shared.pop(arena.data_ptr(), 0)) > 0:
            cuda_shared.free(arena.data_ptr(), size)
        else:
            cuda_driver.close_memory(arena.data_ptr())

    def trim(self, need: int = 0) -> None:
        free, total = cuda_driver.free_memory()
        if free < max(SHORT * total, need) and torch.cuda.memory_reserved() - torch.cuda.memory_allocated() > KEPT_BYTES:
            torch.cuda.empty_cache()

    def give_back(self) -> None:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()

    def configure(self, precision: str) -> None:
        """Sets TF32 as the policy requires for matrix products, convolutions and RNNs. Everything else keeps PyTorch's defaults: deterministic
        algorithms are not forced, reduced-precision reductions are allowed in 16-bit products, and `cudnn.benchmark` is off. KernelBench also keeps
        `cudnn.benchmark` off. With it off, cuDNN's heuristics make the same choice on both sides and in every process; benchmarking in each process
        would make processes differ."""
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
        torch.backends.cudnn.benchmark = False
        torch.set_num_threads(4)

    def sync(self) -> None:
        try:
            self._clock.sync()
        except ClockError as error:
            raise device_failure(error) from None

    def prepare(self) -> None:
        for _ in range(DISPATCHES):
            torch.add(self._tiny, 1)
        self._clock.prepare()
        for _ in range(DISPATCHES):
            torch.add(self._tiny, 1)
        self._clock.sync()

    def failure(self, error: Exception) -> Exception:
        return device_failure(error) if isinstance(error, ClockError) else error

    @property
    def series(self) -> Clock | None:
        return self._clock if self._clock.series else None

    def go(self, fd: int) -> None:
        self._clock.go(fd)

    def done(self, fd: int) -> int:
        try:
            return self._clock.done(fd)
        except ClockError as error:
            raise device_failure(error) from None

    def peak_bytes(self, reset: bool = False) -> int | None:
        if reset:
            torch.cuda.reset_peak_memory_stats()
        return int(torch.cuda.max_memory_allocated())

    def held_bytes(self) -> int | None:
        return int(torch.cuda.memory_allocated())

    def in_use(self, extents: Sequence[tuple[int, int]]) -> list[bool]:
        """Asks torch's allocator, and the driver for addresses that do not belong to that allocator: a program may wrap its own memory as a new
        tensor in each call."""
        torch.cuda.synchronize()
        try:
            blocks = allocated(_memory_snapshot())
        except (RuntimeError, AttributeError):  # another allocator is in use, which frees its memory through the driver
            blocks = []
        begins = [begin for begin, _, _ in blocks]
        found = []
        for begin, _ in extents:
            at = bisect.bisect_right(begins, begin) - 1
            inside = at >= 0 and begin < blocks[at][1]
            found.append(blocks[at][2] if inside else cuda_driver.is_mapped(begin))
        return found


def allocated(segments: Sequence[dict[str, Any]]) -> list[tuple[int, int, bool]]:
    """Returns the blocks of torch's allocator in the order of their addresses: first byte, byte after the last, and whether the block is in use.
    `segments` has the format of `torch.cuda.memory_snapshot`."""
    blocks = []
    for segment in sorted(segments, key=lambda segment: int(segment["address"])):
        begin = int(segment["address"])
        for block in segment["blocks"]:
            blocks.append((begin, begin + int(block["size"]), block["state"] == "active_allocated"))
            begin += int(block["size"])
    return blocks


def device_failure(error: ClockError) -> RuntimeError:
    """Explains a driver error code to the author of a kernel."""
    return RuntimeError(f"CUDA error {error.code}: {_ERRORS.get(error.code, 'the device failed')}") if error.code else RuntimeError(str(error))
