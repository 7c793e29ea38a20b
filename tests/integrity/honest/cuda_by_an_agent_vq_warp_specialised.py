# task: tasks/agents_vq_warp_specialised.py
# device: cuda
# says: as an agent writes it: a producer warp and consumer warps with named barriers (bar.sync, bar.arrive), cp.async, double buffer, TypedDict config, no_grad
from __future__ import annotations

from typing import TypedDict

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline


class Config(TypedDict):
    name: str
    flags: list[str]


CONFIG: Config = {"name": "vq_min_distance", "flags": ["-O3", "-std=c++17", "--ptxas-options=-v"]}

CUDA_SRC = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>

constexpr int D = 32;             // features
constexpr int TILE = 64;          // codes a stage
constexpr int CONSUMERS = 128;    // one vector a consumer thread
constexpr int THREADS = CONSUMERS + 32;

__device__ __forceinline__ void bar_sync(int id) { asm volatile("bar.sync %0, %1;" ::"r"(id), "n"(THREADS) : "memory"); }
__device__ __forceinline__ void bar_arrive(int id) { asm volatile("bar.arrive %0, %1;" ::"r"(id), "n"(THREADS) : "memory"); }
__device__ __forceinline__ float min_nan(float a, float b) { return (a != a || a < b) ? a : b; }

// Barriers: 1 + s = stage s is full, 3 + s = stage s is empty.
__global__ void __launch_bounds__(THREADS) vq_kernel(const float* __restrict__ x, const float* __restrict__ codes, float* __restrict__ y, int n, int entries) {
    __shared__ alignas(16) float stage[2][TILE * D];
    const int tiles = (entries + TILE - 1) / TILE;
    if (threadIdx.x >= CONSUMERS) {                                   // producer warp
        const int lane = threadIdx.x - CONSUMERS;
        for (int t = 0; t < tiles; ++t) {
            const int s = t & 1;
            if (t >= 2) bar_sync(3 + s);
            const int floats = min(TILE, entries - t * TILE) * D;
            for (int i = lane * 4; i < floats; i += 128) {
                const unsigned dst = (unsigned)__cvta_generic_to_shared(&stage[s][i]);
                asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(dst), "l"(codes + (size_t)t * TILE * D + i) : "memory");
            }
            asm volatile("cp.async.commit_group;\ncp.async.wait_group 0;" ::: "memory");
            __threadfence_block();
            bar_arrive(1 + s);
        }
        // take the last arrivals of the consumers, so that no barrier is left half full
        for (int t = max(0, tiles - 2); t < tiles; ++t) bar_sync(3 + (t & 1));
    } else {
        const int row = blockIdx.x * CONSUMERS + threadIdx.x;
        float v[D];
        #pragma unroll
        for (int d = 0; d < D; d += 4) {
            const float4 q = row < n ? *reinterpret_cast<const float4*>(x + (size_t)row * D + d) : make_float4(0.f, 0.f, 0.f, 0.f);
            v[d] = q.x; v[d + 1] = q.y; v[d + 2] = q.z; v[d + 3] = q.w;
        }
        float best = __int_as_float(0x7f800000);
        for (int t = 0; t < tiles; ++t) {
            const int s = t & 1;
            bar_sync(1 + s);
            const int count = min(TILE, entries - t * TILE);
            for (int c = 0; c < count; ++c) {
                const float4* code = reinterpret_cast<const float4*>(&stage[s][c * D]);
                float a = 0.f, b = 0.f;
                #pragma unroll
                for (int d = 0; d < D / 4; ++d) {
                    const float4 q = code[d];
                    const float e0 = v[4 * d] - q.x, e1 = v[4 * d + 1] - q.y, e2 = v[4 * d + 2] - q.z, e3 = v[4 * d + 3] - q.w;
                    a = fmaf(e0, e0, a); b = fmaf(e1, e1, b);
                    a = fmaf(e2, e2, a); b = fmaf(e3, e3, b);
                }
                best = min_nan(a + b, best);
            }
            bar_arrive(3 + s);
        }
        if (row < n) y[row] = best;
    }
}

torch::Tensor vq_min(torch::Tensor x, torch::Tensor codes) {
    TORCH_CHECK(x.size(1) == D && codes.size(1) == D, "this kernel is written for 32 features");
    const int n = x.size(0);
    auto y = torch::empty({n}, x.options());
    vq_kernel<<<(n + CONSUMERS - 1) / CONSUMERS, THREADS, 0, at::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(), codes.data_ptr<float>(), y.data_ptr<float>(),
                                                                                         n, (int)codes.size(0));
    return y;
}
"""

_extension = load_inline(
    name=CONFIG["name"],
    cpp_sources="torch::Tensor vq_min(torch::Tensor x, torch::Tensor codes);",
    cuda_sources=CUDA_SRC,
    functions=["vq_min"],
    extra_cuda_cflags=CONFIG["flags"],
)


class ModelNew(nn.Module):
    codes: nn.Parameter

    def __init__(self, entries: int, dim: int) -> None:
        super().__init__()
        self.codes = nn.Parameter(torch.randn(entries, dim))

    @torch.no_grad()
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _extension.vq_min(x.contiguous(), self.codes)
