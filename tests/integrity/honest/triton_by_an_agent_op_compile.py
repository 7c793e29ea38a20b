# task: tasks/agents_triton_op_compile.py
# device: cuda
# call: 60
# says: as an agent writes it: triton_op and wrap_triton under torch.compile(fullgraph), dynamo setting
import torch
import torch._dynamo
import torch.nn as nn
import triton
import triton.language as tl
from torch.library import triton_op, wrap_triton

torch._dynamo.config.cache_size_limit = 64
torch.set_float32_matmul_precision("highest")


@triton.jit
def _gated_kernel(x_ptr, g_ptr, r_ptr, a_ptr, b_ptr, y_ptr, n, channels, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    c = offs % channels
    x = tl.load(x_ptr + offs, mask=mask)
    g = tl.load(g_ptr + offs, mask=mask)
    r = tl.load(r_ptr + offs, mask=mask)
    a = tl.load(a_ptr + c, mask=mask, eviction_policy="evict_last")
    b = tl.load(b_ptr + c, mask=mask, eviction_policy="evict_last")
    h = x * a + b
    h = tl.where(h < 0.0, 0.0, h)
    tl.store(y_ptr + offs, r + tl.sigmoid(g) * (h * h), mask=mask)


@triton_op("gated_residual::forward", mutates_args={})
def gated_residual(x: torch.Tensor, gate: torch.Tensor, residual: torch.Tensor, alpha: torch.Tensor, beta: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    n = x.numel()
    wrap_triton(_gated_kernel)[(triton.cdiv(n, 1024),)](x, gate, residual, alpha, beta, y, n, x.shape[-1], BLOCK=1024)
    return y


@torch.compile(fullgraph=True, dynamic=False)
def _forward(x, gate, residual, alpha, beta):
    return gated_residual(x, gate, residual, alpha, beta)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(channels))
        self.beta = nn.Parameter(torch.zeros(channels))

    def forward(self, x, gate, residual):
        with torch.no_grad():
            return _forward(x.contiguous(), gate.contiguous(), residual.contiguous(), self.alpha, self.beta)
