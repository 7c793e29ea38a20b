# task: tasks/agents_swiglu_custom_op.py
# device: cuda
# precision: bf16
# says: as an agent writes it: torch.library.custom_op with fake and autograd, from __future__ import annotations, lru_cache getter, builds in the first forward, cuBLAS for both products
from __future__ import annotations

import functools
import logging
import warnings

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

warnings.filterwarnings("ignore", category=UserWarning, module="torch.utils.cpp_extension")
logger = logging.getLogger(__name__)

_CUDA = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <cuda_bf16.h>

// gate_up: [T, 2*F] -> out: [T, F], 8 elements per thread
__global__ void silu_and_mul_kernel(const __nv_bfloat16* __restrict__ gate_up, __nv_bfloat16* __restrict__ out, int ff, long total8) {
    const long idx = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (idx >= total8) return;
    const int per_row = ff / 8;
    const long row = idx / per_row;
    const int col = (idx % per_row) * 8;
    const uint4 g4 = *reinterpret_cast<const uint4*>(gate_up + row * 2 * ff + col);
    const uint4 u4 = *reinterpret_cast<const uint4*>(gate_up + row * 2 * ff + ff + col);
    uint4 o4;
    const __nv_bfloat162* g = reinterpret_cast<const __nv_bfloat162*>(&g4);
    const __nv_bfloat162* u = reinterpret_cast<const __nv_bfloat162*>(&u4);
    __nv_bfloat162* o = reinterpret_cast<__nv_bfloat162*>(&o4);
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        const float2 gf = __bfloat1622float2(g[i]);
        const float2 uf = __bfloat1622float2(u[i]);
        const float a = gf.x / (1.f + __expf(-gf.x));
        const float b = gf.y / (1.f + __expf(-gf.y));
        o[i] = __floats2bfloat162_rn(a * uf.x, b * uf.y);
    }
    *reinterpret_cast<uint4*>(out + row * ff + col) = o4;
}

void silu_and_mul(torch::Tensor out, torch::Tensor gate_up) {
    const int ff = out.size(1);
    const long total8 = out.numel() / 8;
    const int threads = 256;
    silu_and_mul_kernel<<<(total8 + threads - 1) / threads, threads, 0, at::cuda::getCurrentCUDAStream()>>>(
        reinterpret_cast<const __nv_bfloat16*>(gate_up.data_ptr<at::BFloat16>()),
        reinterpret_cast<__nv_bfloat16*>(out.data_ptr<at::BFloat16>()), ff, total8);
}
"""


@functools.lru_cache(maxsize=None)
def _extension():
    from torch.utils.cpp_extension import load_inline

    logger.debug("compiling silu_and_mul")
    return load_inline(
        name="silu_and_mul_bf16",
        cpp_sources="void silu_and_mul(torch::Tensor out, torch::Tensor gate_up);",
        cuda_sources=_CUDA,
        functions=["silu_and_mul"],
        extra_cuda_cflags=["-O3", "--use_fast_math"],
    )


@torch.library.custom_op("swiglu_ops::silu_and_mul", mutates_args=(), device_types="cuda")
def silu_and_mul(gate_up: Tensor) -> Tensor:
    out = gate_up.new_empty(gate_up.shape[0], gate_up.shape[1] // 2)
    _extension().silu_and_mul(out, gate_up)
    return out


@silu_and_mul.register_fake
def _(gate_up):
    return gate_up.new_empty(gate_up.shape[0], gate_up.shape[1] // 2)


def _setup_context(ctx, inputs, output):
    (gate_up,) = inputs
    ctx.save_for_backward(gate_up)


def _backward(ctx, grad):
    (gate_up,) = ctx.saved_tensors
    gate, up = gate_up.float().chunk(2, dim=-1)
    s = torch.sigmoid(gate)
    silu = gate * s
    g = grad.float()
    return torch.cat([g * up * (s + silu * (1 - s)), g * silu], dim=-1).to(gate_up.dtype)


silu_and_mul.register_autograd(_backward, setup_context=_setup_context)


class ModelNew(nn.Module):
    def __init__(self, d_model: int, d_ff: int):
        super().__init__()
        self.gate_up = nn.Linear(d_model, 2 * d_ff, bias=False, dtype=torch.bfloat16)
        self.down = nn.Linear(d_ff, d_model, bias=False, dtype=torch.bfloat16)

    def forward(self, x: Tensor) -> Tensor:
        h = silu_and_mul(self.gate_up(x))
        return F.linear(h, self.down.weight)
