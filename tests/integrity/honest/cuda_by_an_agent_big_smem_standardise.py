# task: tasks/agents_big_smem_standardise.py
# device: cuda
# says: as an agent writes it: 192 KiB of dynamic shared memory by cudaFuncSetAttribute, cudaOccupancyMaxActiveBlocksPerMultiprocessor, static once flag, library fallback in C++
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

# A row of 48 Ki floats is 192 KiB, which fits into the 227 KiB of shared memory that a block may have on H100.
# So the row is read once from HBM and all three passes run out of shared memory.

_src = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <mutex>

constexpr int THREADS = 1024;

__device__ __forceinline__ float block_sum(float v, float* scratch) {
    #pragma unroll
    for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffff, v, o);
    __syncthreads();
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = v;
    __syncthreads();
    v = scratch[threadIdx.x % 32];
    #pragma unroll
    for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffff, v, o);
    return v;
}

__global__ void __launch_bounds__(THREADS, 1) standardise_kernel(const float4* __restrict__ x, float4* __restrict__ y, int rows, int cols4, float eps) {
    extern __shared__ float4 row_smem[];
    __shared__ float scratch[32];
    const float inv_n = 1.f / (4.f * cols4);
    for (int row = blockIdx.x; row < rows; row += gridDim.x) {
        const float4* in = x + (size_t)row * cols4;
        float4* out = y + (size_t)row * cols4;
        float s = 0.f;
        for (int i = threadIdx.x; i < cols4; i += THREADS) {
            const float4 v = __ldcs(in + i);
            row_smem[i] = v;
            s += (v.x + v.y) + (v.z + v.w);
        }
        const float mean = block_sum(s, scratch) * inv_n;
        float q = 0.f;
        for (int i = threadIdx.x; i < cols4; i += THREADS) {
            const float4 v = row_smem[i];
            const float a = v.x - mean, b = v.y - mean, c = v.z - mean, d = v.w - mean;
            q += (a * a + b * b) + (c * c + d * d);
        }
        const float std = sqrtf(block_sum(q, scratch) * inv_n + eps);
        for (int i = threadIdx.x; i < cols4; i += THREADS) {
            const float4 v = row_smem[i];
            __stcs(out + i, make_float4((v.x - mean) / std, (v.y - mean) / std, (v.z - mean) / std, (v.w - mean) / std));
        }
        __syncthreads();
    }
}

torch::Tensor standardise(torch::Tensor x, double eps) {
    const int rows = x.size(0), cols = x.size(1);
    const size_t bytes = (size_t)cols * sizeof(float);
    const auto* properties = at::cuda::getCurrentDeviceProperties();
    const bool fits = cols % 4 == 0 && bytes + 1024 <= properties->sharedMemPerBlockOptin && reinterpret_cast<uintptr_t>(x.data_ptr()) % 16 == 0;
    if (!fits) {   // longer rows: PyTorch's operators
        auto centred = x - x.mean(1, true);
        return centred / centred.pow(2).mean(1, true).add(eps).sqrt();
    }
    static std::once_flag once;
    std::call_once(once, [&] {
        C10_CUDA_CHECK(cudaFuncSetAttribute(standardise_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)properties->sharedMemPerBlockOptin - 1024));
    });
    int per_sm = 0;
    C10_CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, standardise_kernel, THREADS, bytes));
    auto y = torch::empty_like(x);
    const int blocks = std::min(rows, std::max(1, per_sm) * properties->multiProcessorCount);
    standardise_kernel<<<blocks, THREADS, bytes, at::cuda::getCurrentCUDAStream()>>>(
        reinterpret_cast<const float4*>(x.data_ptr<float>()), reinterpret_cast<float4*>(y.data_ptr<float>()), rows, cols / 4, (float)eps);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""


class ModelNew(nn.Module):
    """Row standardisation out of shared memory."""

    def __init__(self, eps=1e-5):
        super().__init__()
        self.eps = float(eps)
        self.op = load_inline(
            "big_smem_standardise",
            "torch::Tensor standardise(torch::Tensor x, double eps);",
            _src,
            functions=["standardise"],
            extra_cuda_cflags=["-O3"],
        ).standardise

    def forward(self, x):
        return self.op(x.contiguous(), self.eps)
