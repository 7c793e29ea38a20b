"""Device memory of the judge that a party maps by a raw IPC handle."""

from __future__ import annotations

import contextlib
from typing import Any

from verifier.devices import cuda_driver
from verifier.devices.base import Arena, NoRoom
from verifier.devices.cuda_driver import CudaError, DeviceBytes


class CudaArena(Arena):
    """Plain device memory of the judge; the handle's 64 bytes travel as hexadecimal digits."""

    def __init__(self, nbytes: int, torch_device: str):
        import torch

        self.nbytes = nbytes = max(nbytes, 4096)
        try:
            try:
                self._pointer = cuda_driver.allocate(nbytes)
            except CudaError:
                torch.cuda.empty_cache()
                self._pointer = cuda_driver.allocate(nbytes)
        except CudaError as error:
            figures = ""
            with contextlib.suppress(CudaError):
                free, total = cuda_driver.free_memory()
                figures = f", and {free / 2**30:.1f} of {total / 2**30:.1f} GiB are free"
            raise NoRoom(f"{nbytes / 2**30:.1f} GiB of GPU memory are needed{figures} ({error.name})") from None
        self.handle: dict[str, Any] = {"ipc": cuda_driver.export_memory(self._pointer).hex(), "nbytes": nbytes}
        self._owner = DeviceBytes(self._pointer, nbytes)
        self._view = torch.as_tensor(self._owner, device=torch_device)

    @property
    def bytes(self) -> Any:
        return self._view

    def leave(self) -> None:
        self._owner.freed = True
        self._pointer, self._view, self._owner = 0, None, None

    def close(self) -> None:
        if self._pointer:
            pointer, self._pointer = self._pointer, 0
            self._view = self._owner = None
            try:
                cuda_driver.free(pointer)
            except CudaError:
                pass  # a device that failed has nothing left to free
