"""Memory that an arena has released is freed with its last tensor: on a GPU by the object that the tensors hold, on the CPU with the mapping."""

import gc
import os

import torch

from verifier.devices import cuda_driver
from verifier.devices.cpu import CpuArena
from verifier.devices.cuda_driver import CudaError, DeviceBytes


def test_device_memory_is_freed_once_and_only_where_it_was_left(monkeypatch):
    freed = []
    monkeypatch.setattr(cuda_driver, "free", freed.append)
    kept, left = DeviceBytes(100, 8), DeviceBytes(200, 8)
    left.freed = True
    del kept, left
    gc.collect()
    assert freed == [200]

    def fails(pointer):
        raise CudaError("cuMemFree_v2", 700, "CUDA_ERROR_ILLEGAL_ADDRESS")

    monkeypatch.setattr(cuda_driver, "free", fails)
    lost = DeviceBytes(300, 8)
    lost.freed = True
    del lost  # after a device failure, there is nothing left to free


def test_host_memory_stays_as_long_as_a_tensor_and_can_be_shown_as_long_as_the_arena():
    arena = CpuArena(8192)
    (fd,) = arena.fds
    tensor = arena.bytes[4096:4100].view(torch.float32)
    arena.leave()
    os.fstat(fd)
    del arena
    gc.collect()
    tensor.fill_(2.0)
    assert float(tensor) == 2.0
    try:
        os.fstat(fd)
    except OSError:
        return
    raise AssertionError("the descriptor is still open")
