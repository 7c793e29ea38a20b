# task: tasks/agents_triton_layernorm_dataclass.py
# device: cuda
# call: 60
# says: as an agent writes it: frozen dataclass with a cached classmethod, from __future__ import annotations with tl.constexpr, libdevice, dict output
from __future__ import annotations

import dataclasses
import typing as t
from functools import lru_cache

import torch
import torch.nn as nn
import triton
import triton.language as tl
from triton.language.extra import libdevice


@dataclasses.dataclass(frozen=True)
class LaunchConfig:
    block: int
    num_warps: int

    @classmethod
    @lru_cache(maxsize=64)
    def for_width(cls, n: int) -> "LaunchConfig":
        block = triton.next_power_of_2(n)
        return cls(block=block, num_warps=min(16, max(1, block // 256)))


@triton.jit
def _gelu_tanh(x):
    c: tl.constexpr = 0.7978845608028654
    return 0.5 * x * (1.0 + libdevice.tanh(c * (x + 0.044715 * x * x * x)))


@triton.jit
def _ln_gelu_kernel(x_ptr, w_ptr, b_ptr, y_ptr, mean_ptr, stride, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < n
    x = tl.load(x_ptr + row * stride + cols, mask=mask, other=0.0).to(tl.float32)
    mu = tl.sum(x, axis=0) / n
    d = tl.where(mask, x - mu, 0.0)
    rstd = 1.0 / tl.sqrt(tl.sum(d * d, axis=0) / n + eps)
    w = tl.load(w_ptr + cols, mask=mask, other=0.0)
    b = tl.load(b_ptr + cols, mask=mask, other=0.0)
    y = _gelu_tanh(d * rstd * w + b)
    tl.store(y_ptr + row * stride + cols, y, mask=mask)
    tl.store(mean_ptr + row, tl.sum(tl.where(mask, y, 0.0), axis=0) / n)


class ModelNew(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.ln = nn.LayerNorm(features)

    def forward(self, x: torch.Tensor) -> t.Dict[str, torch.Tensor]:
        x = x.contiguous()
        n = x.shape[-1]
        rows = x.numel() // n
        cfg = LaunchConfig.for_width(n)
        y = torch.empty_like(x)
        mean = x.new_empty(x.shape[:-1])
        _ln_gelu_kernel[(rows,)](x, self.ln.weight, self.ln.bias, y, mean, n, n, self.ln.eps, BLOCK=cfg.block, num_warps=cfg.num_warps)
        return {"activation": y, "mean": mean}
