# task: tasks/agents_triton_column_atomics.py
# device: cuda
# call: 60
# says: as an agent writes it: tl.atomic_add into sums zeroed in each call, do_not_specialize, device context manager, second kernel that reads them, num_ctas
import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit(do_not_specialize=["T"])
def token_sum_kernel(x_ptr, sum_ptr, T, C, BLOCK_T: tl.constexpr, BLOCK_C: tl.constexpr):
    b = tl.program_id(2)
    t = tl.program_id(1) * BLOCK_T + tl.arange(0, BLOCK_T)
    c = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    mask = (t[:, None] < T) & (c[None, :] < C)
    x = tl.load(x_ptr + (b * T + t[:, None]) * C + c[None, :], mask=mask, other=0.0, eviction_policy="evict_last")
    tl.atomic_add(sum_ptr + b * C + c, tl.sum(x, axis=0), mask=c < C, sem="relaxed")


@triton.jit(do_not_specialize=["T"])
def gate_kernel(x_ptr, sum_ptr, w_ptr, bias_ptr, y_ptr, T, C, BLOCK_T: tl.constexpr, BLOCK_C: tl.constexpr):
    b = tl.program_id(2)
    t = tl.program_id(1) * BLOCK_T + tl.arange(0, BLOCK_T)
    c = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    cm = c < C
    mean = tl.load(sum_ptr + b * C + c, mask=cm, other=0.0) / T
    gate = tl.sigmoid(mean * tl.load(w_ptr + c, mask=cm, other=0.0) + tl.load(bias_ptr + c, mask=cm, other=0.0))
    mask = (t[:, None] < T) & cm[None, :]
    offsets = (b * T + t[:, None]) * C + c[None, :]
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=mask, eviction_policy="evict_first") * gate[None, :], mask=mask)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))
        self._sums = {}

    def forward(self, x):
        x = x.contiguous()
        B, T, C = x.shape
        sums = self._sums.get((B, C, x.device))
        if sums is None:
            sums = self._sums[(B, C, x.device)] = torch.empty((B, C), device=x.device, dtype=torch.float32)
        sums.zero_()
        y = torch.empty_like(x)
        BLOCK_T, BLOCK_C = 64, min(128, triton.next_power_of_2(C))
        grid = (triton.cdiv(C, BLOCK_C), triton.cdiv(T, BLOCK_T), B)
        with torch.cuda.device(x.device):
            token_sum_kernel[grid](x, sums, T, C, BLOCK_T=BLOCK_T, BLOCK_C=BLOCK_C, num_warps=8)
            gate_kernel[grid](x, sums, self.weight, self.bias, y, T, C, BLOCK_T=BLOCK_T, BLOCK_C=BLOCK_C, num_warps=8, num_ctas=1)
        return y
