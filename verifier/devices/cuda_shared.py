"""Device memory shared through a file descriptor. A process that did not receive the descriptor has no way to refer to the memory.

This module uses CUDA's virtual memory management (driver API, "Virtual Memory Management"). Physical memory is created, mapped into reserved
addresses, and exported as a descriptor. The descriptor is sent over a Unix socket, and the other process maps the same memory. The memory lives until
the last mapping and the last descriptor are gone, so the judge can release an arena that a party still maps. By contrast, raw IPC handles are 64
bytes that anybody can write, and freeing memory that another process maps is undefined behaviour.
"""

from __future__ import annotations

import contextlib
import ctypes
import os

from verifier.devices.cuda_driver import CudaError, DeviceBytes, call

_PINNED, _DESCRIPTOR, _ON_DEVICE, _READ_WRITE = 1, 1, 1, 3


class _Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class _Properties(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", _Location),
        ("win32", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    ]


class _Access(ctypes.Structure):
    _fields_ = [("location", _Location), ("flags", ctypes.c_int)]


def allocate(device: int, nbytes: int) -> tuple[int, int, int]:
    """Allocates device memory. Returns the memory's address, its size in whole blocks, and a descriptor to send. Raises `CudaError`."""
    properties = _Properties(type=_PINNED, handle_types=_DESCRIPTOR, location=_Location(_ON_DEVICE, device))
    block = ctypes.c_size_t()
    call("cuMemGetAllocationGranularity", ctypes.byref(block), ctypes.byref(properties), ctypes.c_int(0))
    size = -(-max(nbytes, 1) // block.value) * block.value
    memory = ctypes.c_uint64()
    call("cuMemCreate", ctypes.byref(memory), ctypes.c_size_t(size), ctypes.byref(properties), ctypes.c_uint64(0))
    try:
        pointer = _map(device, memory, size)
        descriptor = ctypes.c_int(-1)
        try:
            call("cuMemExportToShareableHandle", ctypes.byref(descriptor), memory, ctypes.c_int(_DESCRIPTOR), ctypes.c_uint64(0))
        except CudaError:
            free(pointer, size)
            raise
    finally:
        call("cuMemRelease", memory)  # the mapping keeps the memory alive
    os.set_inheritable(descriptor.value, False)
    return pointer, size, descriptor.value


def attach(device: int, descriptor: int, size: int) -> int:
    """Maps memory that another process shares and returns its address. The caller keeps ownership of the descriptor. Raises `CudaError`."""
    memory = ctypes.c_uint64()
    call("cuMemImportFromShareableHandle", ctypes.byref(memory), ctypes.c_void_p(descriptor), ctypes.c_int(_DESCRIPTOR))
    try:
        return _map(device, memory, size)
    finally:
        call("cuMemRelease", memory)


def free(pointer: int, size: int) -> None:
    """Removes this process's mapping. All work on the memory must have finished."""
    try:
        call("cuMemUnmap", ctypes.c_uint64(pointer), ctypes.c_size_t(size))
    finally:
        call("cuMemAddressFree", ctypes.c_uint64(pointer), ctypes.c_size_t(size))


class SharedBytes(DeviceBytes):
    """Shared device memory. `size` is the size of the mapping in bytes. Unmapping memory, unlike freeing it, does not wait for work on it. Therefore,
    this object waits in whichever thread drops the last tensor."""

    def __init__(self, pointer: int, nbytes: int, size: int, device: int):
        super().__init__(pointer, nbytes)
        self.size, self.device = size, device

    def release(self) -> None:
        import torch

        with contextlib.suppress(RuntimeError):  # there is no point in waiting for a failed device
            torch.cuda.synchronize(self.device)
        free(self.pointer, self.size)


def _map(device: int, memory: ctypes.c_uint64, size: int) -> int:
    pointer = ctypes.c_uint64()
    call("cuMemAddressReserve", ctypes.byref(pointer), ctypes.c_size_t(size), ctypes.c_size_t(0), ctypes.c_uint64(0), ctypes.c_uint64(0))
    mapped = False
    try:
        call("cuMemMap", pointer, ctypes.c_size_t(size), ctypes.c_size_t(0), memory, ctypes.c_uint64(0))
        mapped = True
        access = _Access(_Location(_ON_DEVICE, device), _READ_WRITE)
        call("cuMemSetAccess", pointer, ctypes.c_size_t(size), ctypes.byref(access), ctypes.c_size_t(1))
    except CudaError:
        with contextlib.suppress(CudaError):
            if mapped:
                call("cuMemUnmap", pointer, ctypes.c_size_t(size))
            call("cuMemAddressFree", pointer, ctypes.c_size_t(size))
        raise
    return pointer.value
