# task: tasks/agents_triton_tma_descriptor.py
# device: cuda
# precision: bf16
# call: 60
# says: as an agent writes it: device-side TMA descriptors, triton.set_allocator, persistent; number of SMs read at import
"""Persistent matmul with device-side TMA descriptors (needs a global workspace from triton.set_allocator)."""
from typing import Optional

import torch
import torch.nn as nn
import triton
import triton.language as tl


def _alloc(size: int, alignment: int, stream: Optional[int]):
    return torch.empty(size, device="cuda", dtype=torch.int8)


triton.set_allocator(_alloc)

if torch.cuda.is_available():
    NUM_SMS = torch.cuda.get_device_properties(0).multi_processor_count
else:
    NUM_SMS = 132


@triton.jit
def _tma_matmul(a_ptr, b_ptr, c_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, NUM_SMS: tl.constexpr):
    a_desc = tl.make_tensor_descriptor(a_ptr, shape=[M, K], strides=[K, 1], block_shape=[BLOCK_M, BLOCK_K])
    b_desc = tl.make_tensor_descriptor(b_ptr, shape=[N, K], strides=[K, 1], block_shape=[BLOCK_N, BLOCK_K])
    c_desc = tl.make_tensor_descriptor(c_ptr, shape=[M, N], strides=[N, 1], block_shape=[BLOCK_M, BLOCK_N])
    num_m, num_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    tiles = num_m * num_n
    for tile in tl.range(tl.program_id(0), tiles, NUM_SMS):
        in_group = GROUP_M * num_n
        first = (tile // in_group) * GROUP_M
        size = min(num_m - first, GROUP_M)
        pid_m = first + (tile % in_group) % size
        pid_n = (tile % in_group) // size
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, tl.cdiv(K, BLOCK_K)):
            a = a_desc.load([pid_m * BLOCK_M, k * BLOCK_K])
            b = b_desc.load([pid_n * BLOCK_N, k * BLOCK_K])
            acc = tl.dot(a, b.T, acc)
        c_desc.store([pid_m * BLOCK_M, pid_n * BLOCK_N], acc.to(c_ptr.dtype.element_ty))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, A, B):
        A, B = A.contiguous(), B.contiguous()
        (M, K), N = A.shape, B.shape[0]
        C = torch.empty((M, N), dtype=A.dtype, device=A.device)
        tiles = triton.cdiv(M, 128) * triton.cdiv(N, 128)
        _tma_matmul[(min(NUM_SMS, tiles),)](A, B, C, M, N, K, BLOCK_M=128, BLOCK_N=128, BLOCK_K=64, GROUP_M=8, NUM_SMS=NUM_SMS, num_warps=8, num_stages=3)
        return C
