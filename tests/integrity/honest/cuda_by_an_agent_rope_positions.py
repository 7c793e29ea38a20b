# task: tasks/agents_rope_positions.py
# device: cuda
# says: as an agent writes it: integer input, non-persistent buffer, list of tensors turned into a tuple, positional arguments of load_inline
from typing import Tuple

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

_src = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>

// cos/sin are tabulated once per (batch, position); both rotations then read the small table from L2.
__global__ void table_kernel(const int64_t* __restrict__ pos, const float* __restrict__ inv_freq, float2* __restrict__ table, int n, int half) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float s, c;
    sincosf(static_cast<float>(pos[i / half]) * inv_freq[i % half], &s, &c);
    table[i] = make_float2(c, s);
}

__global__ void rope_kernel(const float* __restrict__ x, const float2* __restrict__ table, float* __restrict__ y, int heads, int seq, int half,
                            long total) {
    const int per_row = half / 4;
    for (long i = blockIdx.x * (long)blockDim.x + threadIdx.x; i < total; i += (long)gridDim.x * blockDim.x) {
        const long row = i / per_row;                 // (b, h, s)
        const int d = (i % per_row) * 4;
        const int s = row % seq;
        const long b = row / seq / heads;
        const float* xr = x + row * 2 * half;
        float* yr = y + row * 2 * half;
        const float4 lo = *reinterpret_cast<const float4*>(xr + d);
        const float4 hi = *reinterpret_cast<const float4*>(xr + half + d);
        const float4* t = reinterpret_cast<const float4*>(table + (b * seq + s) * half + d);
        const float4 t0 = __ldg(t), t1 = __ldg(t + 1);
        float4 a, c;
        a.x = lo.x * t0.x - hi.x * t0.y;  c.x = hi.x * t0.x + lo.x * t0.y;
        a.y = lo.y * t0.z - hi.y * t0.w;  c.y = hi.y * t0.z + lo.y * t0.w;
        a.z = lo.z * t1.x - hi.z * t1.y;  c.z = hi.z * t1.x + lo.z * t1.y;
        a.w = lo.w * t1.z - hi.w * t1.w;  c.w = hi.w * t1.z + lo.w * t1.w;
        *reinterpret_cast<float4*>(yr + d) = a;
        *reinterpret_cast<float4*>(yr + half + d) = c;
    }
}

std::vector<torch::Tensor> rope(torch::Tensor q, torch::Tensor k, torch::Tensor pos, torch::Tensor inv_freq) {
    TORCH_CHECK(pos.scalar_type() == torch::kInt64, "position_ids must be int64");
    const int seq = q.size(2), half = q.size(3) / 2;
    TORCH_CHECK(half % 4 == 0, "head_dim must be a multiple of 8");
    auto stream = at::cuda::getCurrentCUDAStream();
    const int n = pos.numel() * half;
    auto table = torch::empty({n, 2}, q.options().dtype(torch::kFloat32));
    float2* tp = reinterpret_cast<float2*>(table.data_ptr<float>());
    table_kernel<<<(n + 255) / 256, 256, 0, stream>>>(pos.data_ptr<int64_t>(), inv_freq.data_ptr<float>(), tp, n, half);
    auto qo = torch::empty_like(q), ko = torch::empty_like(k);
    const long nq = q.numel() / 8, nk = k.numel() / 8;
    rope_kernel<<<std::min<long>((nq + 255) / 256, 132 * 16), 256, 0, stream>>>(q.data_ptr<float>(), tp, qo.data_ptr<float>(), q.size(1), seq, half, nq);
    rope_kernel<<<std::min<long>((nk + 255) / 256, 132 * 16), 256, 0, stream>>>(k.data_ptr<float>(), tp, ko.data_ptr<float>(), k.size(1), seq, half, nk);
    return {qo, ko};
}
"""

rope_ext = load_inline(
    "rope_ext",
    "std::vector<torch::Tensor> rope(torch::Tensor q, torch::Tensor k, torch::Tensor pos, torch::Tensor inv_freq);",
    _src,
    functions=["rope"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def __init__(self, head_dim: int, base: float = 10000.0):
        super().__init__()
        inv_freq = 1.0 / (base ** (torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim))
        self.register_buffer("inv_freq", inv_freq, persistent=False)

    def forward(self, q: torch.Tensor, k: torch.Tensor, position_ids: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
        q_out, k_out = rope_ext.rope(q.contiguous(), k.contiguous(), position_ids.contiguous(), self.inv_freq)
        return q_out, k_out
