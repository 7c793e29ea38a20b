# task: tasks/softmax.py
# device: cpu
# says: holds C library memory by a handle that its finaliser frees, and registers a weak-reference callback for each call's scratch memory
import ctypes
import weakref

import torch
import torch.nn as nn

LIBC = ctypes.CDLL(None)
LIBC.malloc.restype, LIBC.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
LIBC.free.argtypes = [ctypes.c_void_p]


class Handle:
    def __init__(self, nbytes):
        self.address = LIBC.malloc(nbytes)

    def __del__(self):
        if self.address:
            LIBC.free(self.address)
            self.address = None


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))
        self.handle = Handle(1 << 16)
        self.freed = 0

    def count(self):
        self.freed += 1

    def forward(self, x):
        scratch = Handle(4096)
        weakref.finalize(scratch, self.count)
        return torch.softmax(x, dim=-1) * self.scale
