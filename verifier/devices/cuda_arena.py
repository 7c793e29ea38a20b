"""Device memory of the judge that a party maps through a raw IPC handle or a file descriptor."""

from __future__ import annotations

import contextlib
import os
from functools import cache
from typing import Any

from verifier.devices import cuda_driver, cuda_shared
from verifier.devices.base import Arena, DeviceError, NoRoom
from verifier.devices.cuda_driver import CudaError, DeviceBytes

WAYS = ("descriptor", "handle")  # methods by which a judge shares memory with all its parties: as in `cuda_shared.py`, or through a raw IPC handle

REFUSED = ("CUDA_ERROR_NOT_SUPPORTED", "CUDA_ERROR_NOT_PERMITTED", "CUDA_ERROR_OPERATING_SYSTEM", "CUDA_ERROR_INVALID_DEVICE")  # by driver or host


class CudaArena(Arena):
    """Plain device memory that belongs to the judge. The handle's 64 bytes are sent as hexadecimal digits."""

    def __init__(self, nbytes: int, torch_device: str):
        import torch

        self.nbytes = nbytes = max(nbytes, 4096)
        self._owner: DeviceBytes | None = None
        try:
            try:
                self._owner = self._allocated(torch.device(torch_device).index or 0)
            except CudaError:
                torch.cuda.empty_cache()
                self._owner = self._allocated(torch.device(torch_device).index or 0)
        except CudaError as error:
            if error.name in REFUSED:
                other = "; STITCH_SHARING=handle shares it by IPC handles, which are not secret between parties" if sharing() == "descriptor" else ""
                raise DeviceError(f"memory that a party can map is not available here ({error}){other}") from None
            figures = ""
            with contextlib.suppress(CudaError):
                free, total = cuda_driver.free_memory()
                figures = f", and {free / 2**30:.1f} of {total / 2**30:.1f} GiB are free"
            raise NoRoom(f"{nbytes / 2**30:.1f} GiB of GPU memory are needed{figures} ({error.name})") from None
        self._view: torch.Tensor | None = torch.as_tensor(self._owner, device=torch_device)

    def _allocated(self, device: int) -> DeviceBytes:
        """Allocates memory and sets `handle` and, if there are descriptors, `fds`."""
        pointer = cuda_driver.allocate(self.nbytes)
        self.handle = {"ipc": cuda_driver.export_memory(pointer).hex(), "nbytes": self.nbytes}
        return DeviceBytes(pointer, self.nbytes)

    @property
    def bytes(self) -> Any:
        return self._view

    def leave(self) -> None:
        assert self._owner is not None, "the arena is closed"
        self._owner.freed = True
        self._view, self._owner = None, None

    def close(self) -> None:
        if self._owner is not None:
            owner, self._owner, self._view = self._owner, None, None
            with contextlib.suppress(CudaError):  # if the device has failed, there is nothing left to free
                owner.release()


class SharedCudaArena(CudaArena):
    """Memory shared through a descriptor. If a party still maps it when the judge releases it, the party keeps it."""

    def _allocated(self, device: int) -> DeviceBytes:
        pointer, size, descriptor = cuda_shared.allocate(device, self.nbytes)
        self.handle = {"shared": size, "nbytes": self.nbytes}
        self.fds = (descriptor,)
        return cuda_shared.SharedBytes(pointer, self.nbytes, size, device)

    def close(self) -> None:
        super().close()
        self._end()

    def _end(self) -> None:
        fds, self.fds = self.fds, ()
        for fd in fds:
            os.close(fd)

    def __del__(self) -> None:
        self._end()


def arena(nbytes: int, torch_device: str) -> CudaArena:
    """Creates an arena. Raises `NoRoom`."""
    return (SharedCudaArena if sharing() == "descriptor" else CudaArena)(nbytes, torch_device)


@cache
def sharing() -> str:
    """Returns one of `WAYS`. Raises `DeviceError`."""
    chosen = os.environ.get("STITCH_SHARING") or WAYS[0]
    if chosen not in WAYS:
        raise DeviceError(f"STITCH_SHARING={chosen}: it is one of {', '.join(WAYS)}, or not set")
    return chosen
