# task: tasks/agents_triton_causal_conv.py
# device: cuda
# call: 60
# says: as an agent writes it: tl.static_range over taps, loads repeated from L1, named tuple result turned into a tuple, math.prod, assertions with messages
import math
from typing import NamedTuple

import torch
import torch.nn as nn
import triton
import triton.language as tl


class ConvResult(NamedTuple):
    y: torch.Tensor
    state: torch.Tensor


@triton.jit
def silu(v):
    return v * tl.sigmoid(v)


@triton.jit
def causal_conv_kernel(x_ptr, w_ptr, b_ptr, y_ptr, state_ptr, T, D, WIDTH: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_D: tl.constexpr):
    batch = tl.program_id(2).to(tl.int64)
    t = tl.program_id(1) * BLOCK_T + tl.arange(0, BLOCK_T)
    d = tl.program_id(0) * BLOCK_D + tl.arange(0, BLOCK_D)
    dm = d < D
    acc = tl.zeros((BLOCK_T, BLOCK_D), dtype=tl.float32) + tl.load(b_ptr + d, mask=dm, other=0.0)[None, :]
    base = x_ptr + batch * T * D
    for j in tl.static_range(WIDTH):
        src = t - (WIDTH - 1) + j
        tap = tl.load(w_ptr + d * WIDTH + j, mask=dm, other=0.0)
        x = tl.load(base + src[:, None] * D + d[None, :], mask=(src[:, None] >= 0) & (src[:, None] < T) & dm[None, :], other=0.0)
        acc += x * tap[None, :]
    out = (t[:, None] < T) & dm[None, :]
    tl.store(y_ptr + batch * T * D + t[:, None] * D + d[None, :], silu(acc), mask=out)
    keep = t - (T - WIDTH + 1)
    last = tl.load(base + t[:, None] * D + d[None, :], mask=out & (keep[:, None] >= 0), other=0.0)
    tl.store(state_ptr + (batch * (WIDTH - 1) + keep[:, None]) * D + d[None, :], last, mask=out & (keep[:, None] >= 0))


def causal_conv(x, weight, bias) -> ConvResult:
    assert x.ndim == 3 and x.is_cuda, f"want (batch, time, channels) on a GPU, got {tuple(x.shape)} on {x.device}"
    assert math.prod(x.shape) < 2**31, "offsets within a sequence are 32 bits wide"
    B, T, D = x.shape
    width = weight.shape[-1]
    y = torch.empty_like(x)
    state = torch.empty((B, width - 1, D), dtype=x.dtype, device=x.device)
    BLOCK_T, BLOCK_D = 32, 128
    causal_conv_kernel[(triton.cdiv(D, BLOCK_D), triton.cdiv(T, BLOCK_T), B)](
        x, weight, bias, y, state, T, D, WIDTH=width, BLOCK_T=BLOCK_T, BLOCK_D=BLOCK_D, num_warps=4
    )
    return ConvResult(y, state)


class ModelNew(nn.Module):
    def __init__(self, dim, width=4):
        super().__init__()
        self.width = width
        self.conv = nn.Conv1d(dim, dim, width, groups=dim, padding=width - 1)

    def forward(self, x):
        result = causal_conv(x.contiguous(), self.conv.weight, self.conv.bias)
        return tuple(result)
