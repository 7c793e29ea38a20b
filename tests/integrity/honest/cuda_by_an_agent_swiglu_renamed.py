# task: tasks/agents_swiglu_renamed.py
# device: cuda
# precision: bf16
# says: as an agent writes it: w1 and w3 merged into one renamed parameter by register_load_state_dict_pre_hook, cuBLAS products, vectorised bf16x2 gate, staticmethod caller
import math
from typing import Any

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

_GATE = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <cuda_bf16.h>

// h = silu(g) * u for gu = [g | u]; 8 values a thread. Intermediates are rounded to bf16 where eager rounds.
__global__ void gate_kernel(const uint4* __restrict__ gu, uint4* __restrict__ h, int hidden8, int total8) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= total8) return;
    const int row = i / hidden8, col = i % hidden8;
    const uint4 g4 = gu[(size_t)row * hidden8 * 2 + col], u4 = gu[(size_t)row * hidden8 * 2 + hidden8 + col];
    uint4 out;
    const __nv_bfloat162* g = reinterpret_cast<const __nv_bfloat162*>(&g4);
    const __nv_bfloat162* u = reinterpret_cast<const __nv_bfloat162*>(&u4);
    __nv_bfloat162* o = reinterpret_cast<__nv_bfloat162*>(&out);
    #pragma unroll
    for (int k = 0; k < 4; ++k) {
        const float2 a = __bfloat1622float2(g[k]), b = __bfloat1622float2(u[k]);
        const float2 s = __bfloat1622float2(__floats2bfloat162_rn(a.x / (1.f + expf(-a.x)), a.y / (1.f + expf(-a.y))));
        o[k] = __floats2bfloat162_rn(s.x * b.x, s.y * b.y);
    }
    h[i] = out;
}

torch::Tensor swiglu_gate(torch::Tensor gu) {
    const int rows = gu.size(0), hidden = gu.size(1) / 2;
    TORCH_CHECK(hidden % 8 == 0 && gu.scalar_type() == torch::kBFloat16, "bf16 and a multiple of 8 wanted");
    auto h = torch::empty({rows, hidden}, gu.options());
    const int total8 = rows * (hidden / 8);
    gate_kernel<<<(total8 + 255) / 256, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
        reinterpret_cast<const uint4*>(gu.data_ptr<at::BFloat16>()), reinterpret_cast<uint4*>(h.data_ptr<at::BFloat16>()), hidden / 8, total8);
    return h;
}
"""

_gate = load_inline(
    name="swiglu_gate_bf16",
    cpp_sources="torch::Tensor swiglu_gate(torch::Tensor gu);",
    cuda_sources=_GATE,
    functions=["swiglu_gate"],
    extra_cuda_cflags=["-O3", "-U__CUDA_NO_BFLOAT16_OPERATORS__", "-U__CUDA_NO_BFLOAT162_OPERATORS__", "-U__CUDA_NO_BFLOAT16_CONVERSIONS__"],
)


class ModelNew(nn.Module):
    def __init__(self, dim: int, hidden: int):
        super().__init__()
        self.hidden = hidden
        self.w13 = nn.Parameter(torch.empty(2 * hidden, dim, dtype=torch.bfloat16))
        self.w2 = nn.Linear(hidden, dim, bias=False, dtype=torch.bfloat16)
        nn.init.kaiming_uniform_(self.w13, a=math.sqrt(5))
        self.register_load_state_dict_pre_hook(self._merge)

    @staticmethod
    def _merge(module: nn.Module, state: dict, prefix: str, *_: Any) -> None:
        gate, up = state.pop(prefix + "w1.weight", None), state.pop(prefix + "w3.weight", None)
        if gate is not None and up is not None:
            state[prefix + "w13"] = torch.cat([gate, up], dim=0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gu = torch.mm(x, self.w13.t())
        return self.w2(_gate.swiglu_gate(gu))
