# task: tasks/agents_nf4_gemv.py
# device: cuda
# says: as an agent writes it: 4-bit codes, table copied to constant memory by cudaMemcpyToSymbolAsync in each call, AT_ASSERT macros, device guard
"""NF4 GEMV. One warp computes one output feature for up to four rows of x; the code book lives in __constant__ memory."""
from __future__ import annotations

import functools
import os
import warnings

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

warnings.filterwarnings("ignore", message=".*TORCH_CUDA_ARCH_LIST.*")
_DEBUG = os.environ.get("NF4_DEBUG", "0") == "1"

_DECL = "torch::Tensor nf4_gemv(torch::Tensor x, torch::Tensor packed, torch::Tensor absmax, torch::Tensor code, int64_t block);"

_SRC = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAException.h>

#define CHECK_CUDA(t) TORCH_CHECK((t).is_cuda(), #t " must be a CUDA tensor")
#define CHECK_CONTIGUOUS(t) TORCH_CHECK((t).is_contiguous(), #t " must be contiguous")
#define CHECK_INPUT(t) CHECK_CUDA(t); CHECK_CONTIGUOUS(t)

__constant__ float c_code[16];

template <int ROWS>
__global__ void __launch_bounds__(256) nf4_kernel(const float* __restrict__ x, const uint8_t* __restrict__ packed, const float* __restrict__ absmax,
                                                 float* __restrict__ y, int rows, int N, int K, int block) {
    __shared__ float table[32][16];          // one copy a lane group keeps bank conflicts low
    for (int i = threadIdx.x; i < 32 * 16; i += blockDim.x) table[i / 16][i % 16] = c_code[i % 16];
    __syncthreads();
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int n = blockIdx.x * (blockDim.x / 32) + warp;
    if (n >= N) return;
    const uint8_t* w = packed + (size_t)n * (K / 2);
    const float* scale = absmax + (size_t)n * (K / block);
    float acc[ROWS] = {};
    for (int k = lane * 8; k < K; k += 32 * 8) {            // eight weights = four bytes
        const uint32_t four = *reinterpret_cast<const uint32_t*>(w + k / 2);
        const float s = scale[k / block];
        float v[8];
        #pragma unroll
        for (int b = 0; b < 8; ++b) v[b] = table[lane][(four >> (4 * b)) & 15u] * s;
        #pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            if (r < rows) {
                const float4 a = *reinterpret_cast<const float4*>(x + (size_t)r * K + k);
                const float4 c = *reinterpret_cast<const float4*>(x + (size_t)r * K + k + 4);
                acc[r] += a.x * v[0] + a.y * v[1] + a.z * v[2] + a.w * v[3] + c.x * v[4] + c.y * v[5] + c.z * v[6] + c.w * v[7];
            }
        }
    }
    #pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        #pragma unroll
        for (int o = 16; o > 0; o >>= 1) acc[r] += __shfl_xor_sync(0xffffffffu, acc[r], o);
        if (lane == 0 && r < rows) y[(size_t)r * N + n] = acc[r];
    }
}

torch::Tensor nf4_gemv(torch::Tensor x, torch::Tensor packed, torch::Tensor absmax, torch::Tensor code, int64_t block) {
    CHECK_INPUT(x); CHECK_INPUT(packed); CHECK_INPUT(absmax); CHECK_INPUT(code);
    TORCH_CHECK(x.dim() == 2 && x.size(1) % 256 == 0 && block % 8 == 0, "unsupported shape");
    const c10::cuda::CUDAGuard guard(x.device());
    auto stream = at::cuda::getCurrentCUDAStream();
    const int M = x.size(0), K = x.size(1), N = packed.size(0);
    C10_CUDA_CHECK(cudaMemcpyToSymbolAsync(c_code, code.data_ptr<float>(), 16 * sizeof(float), 0, cudaMemcpyDeviceToDevice, stream));
    auto y = torch::empty({M, N}, x.options());
    for (int m = 0; m < M; m += 4) {
        nf4_kernel<4><<<(N + 7) / 8, 256, 0, stream>>>(x.data_ptr<float>() + (size_t)m * K, packed.data_ptr<uint8_t>(), absmax.data_ptr<float>(),
                                                       y.data_ptr<float>() + (size_t)m * N, std::min(4, M - m), N, K, (int)block);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    }
    return y;
}
"""


@functools.lru_cache(maxsize=None)
def _module():
    return load_inline(
        name="nf4_gemv_ext",
        cpp_sources=_DECL,
        cuda_sources=_SRC,
        functions=["nf4_gemv"],
        extra_cuda_cflags=["-O3", "-std=c++17"],
        verbose=_DEBUG,
    )


class ModelNew(nn.Module):
    def __init__(self, in_features: int, out_features: int, block: int = 64) -> None:
        super().__init__()
        self.block = block
        self.register_buffer("packed", torch.randint(0, 256, (out_features, in_features // 2), dtype=torch.uint8))
        self.register_buffer("absmax", torch.rand(out_features, in_features // block) * 0.05 + 0.01)
        self.register_buffer("code", torch.linspace(-1, 1, 16))

    @torch.inference_mode()
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = _module().nf4_gemv(x.contiguous(), self.packed, self.absmax, self.code, self.block)
        if _DEBUG:
            print(f"nf4 {tuple(x.shape)} -> {tuple(y.shape)} max {y.abs().max().item():.4f}")
        return y
