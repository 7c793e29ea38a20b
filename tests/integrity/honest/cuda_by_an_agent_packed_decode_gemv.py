# task: tasks/agents_packed_decode_gemv.py
# device: cuda
# says: as an agent writes it: weights packed lazily by (data_ptr, _version), split-K workspace kept by a dataclass
"""Skinny GEMM with pre-packed weights and split-K.

Weights are repacked once into [N/32][K/4][32] float4 tiles so that a warp reads 512 contiguous bytes per step.
The packed copy is keyed on (data_ptr, _version): optimiser steps and load_state_dict invalidate it.  The split-K
workspace is kept between calls; the output is always a fresh tensor.
"""
from dataclasses import dataclass, field
from typing import Dict, Optional, Tuple

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SPLITS = 8

_CU = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>

constexpr int MB = 8;      // rows of x per CTA
constexpr int WARPS = 4;

// packed: float4[N/32][K/4][32]; lane = output column inside the group of 32
__global__ void __launch_bounds__(WARPS * 32) skinny_kernel(const float* __restrict__ x, const float4* __restrict__ packed, float* __restrict__ part,
                                                           int M, int N, int K, int k4_per_split) {
    __shared__ float4 xs[64][MB];
    __shared__ float red[WARPS][MB][32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int group = blockIdx.x, split = blockIdx.y;
    const int k4 = K / 4, begin = split * k4_per_split, end = min(k4, begin + k4_per_split);
    float acc[MB] = {};
    for (int c = begin; c < end; c += 64) {
        const int n = min(64, end - c);
        __syncthreads();
        for (int i = threadIdx.x; i < 64 * MB; i += WARPS * 32) {
            const int kk = i % 64, m = i / 64;
            xs[kk][m] = kk < n && m < M ? reinterpret_cast<const float4*>(x + (size_t)m * K)[c + kk] : make_float4(0.f, 0.f, 0.f, 0.f);
        }
        __syncthreads();
        #pragma unroll 4
        for (int kk = warp; kk < n; kk += WARPS) {
            const float4 w = __ldcs(packed + ((size_t)group * k4 + c + kk) * 32 + lane);
            #pragma unroll
            for (int m = 0; m < MB; ++m) {
                const float4 v = xs[kk][m];
                acc[m] += w.x * v.x + w.y * v.y + w.z * v.z + w.w * v.w;
            }
        }
    }
    #pragma unroll
    for (int m = 0; m < MB; ++m) red[warp][m][lane] = acc[m];
    __syncthreads();
    for (int m = warp; m < M; m += WARPS) {
        float s = 0.f;
        #pragma unroll
        for (int w = 0; w < WARPS; ++w) s += red[w][m][lane];
        part[((size_t)split * M + m) * N + group * 32 + lane] = s;
    }
}

__global__ void finish_kernel(const float* __restrict__ part, const float* __restrict__ bias, float* __restrict__ y, int MN, int N, int splits) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= MN) return;
    float s = bias[i % N];
    for (int k = 0; k < splits; ++k) s += part[(size_t)k * MN + i];
    y[i] = s;
}

torch::Tensor skinny_linear(torch::Tensor x, torch::Tensor packed, torch::Tensor bias, torch::Tensor workspace, int64_t splits) {
    const int M = x.size(0), K = x.size(1), N = bias.size(0);
    TORCH_CHECK(M <= MB, "at most 8 rows");
    auto y = torch::empty({M, N}, x.options());
    auto stream = at::cuda::getCurrentCUDAStream();
    const int per = (K / 4 + splits - 1) / splits;
    skinny_kernel<<<dim3(N / 32, splits), WARPS * 32, 0, stream>>>(x.data_ptr<float>(), reinterpret_cast<const float4*>(packed.data_ptr<float>()),
                                                                  workspace.data_ptr<float>(), M, N, K, per);
    finish_kernel<<<(M * N + 255) / 256, 256, 0, stream>>>(workspace.data_ptr<float>(), bias.data_ptr<float>(), y.data_ptr<float>(), M * N, N, splits);
    return y;
}
"""

_lib = load_inline(
    name="skinny_linear_ext",
    cpp_sources="torch::Tensor skinny_linear(torch::Tensor x, torch::Tensor packed, torch::Tensor bias, torch::Tensor workspace, int64_t splits);",
    cuda_sources=_CU,
    functions=["skinny_linear"],
    extra_cuda_cflags=["-O3", "--use_fast_math"],
)


@dataclass
class PackedWeight:
    key: Optional[Tuple[int, int]] = None
    data: Optional[torch.Tensor] = None
    workspaces: Dict[int, torch.Tensor] = field(default_factory=dict)

    def get(self, weight: torch.Tensor) -> torch.Tensor:
        key = (weight.data_ptr(), weight._version)
        if key != self.key:
            n, k = weight.shape
            self.data = weight.detach().view(n // 32, 32, k // 4, 4).permute(0, 2, 1, 3).contiguous()
            self.key = key
        return self.data

    def workspace(self, rows: int, weight: torch.Tensor) -> torch.Tensor:
        if rows not in self.workspaces:
            self.workspaces[rows] = torch.empty(SPLITS * rows * weight.shape[0], device=weight.device)
        return self.workspaces[rows]


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        self.bias = nn.Parameter(torch.zeros(out_features))
        nn.init.normal_(self.weight, std=0.02)
        self._packed = PackedWeight()

    def forward(self, x):
        packed = self._packed.get(self.weight)
        return _lib.skinny_linear(x.contiguous(), packed, self.bias, self._packed.workspace(x.shape[0], self.weight), SPLITS)
