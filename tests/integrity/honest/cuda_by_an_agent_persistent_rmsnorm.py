# task: tasks/agents_persistent_rmsnorm.py
# device: cuda
# says: as an agent writes it: persistent blocks, an atomic row counter that the last block resets, counters for each device in a dict, SM count queried
"""Fused residual + RMSNorm with a persistent grid and a dynamic scheduler.

Blocks take chunks of rows from a global counter. The last block to leave sets the counter back to zero, so no memset is needed between launches.
"""
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_src = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <vector>

constexpr int THREADS = 256;
constexpr int CHUNK = 4;   // rows a ticket

template <int VEC>         // float4 vectors a thread
__global__ void __launch_bounds__(THREADS, 4)
rms_persistent(const float4* __restrict__ x, const float4* __restrict__ res, const float4* __restrict__ w, float4* __restrict__ y, float4* __restrict__ h,
               unsigned int* __restrict__ counter, int rows, float eps) {
    __shared__ unsigned int ticket;
    __shared__ float warp_sum[THREADS / 32];
    const int tid = threadIdx.x;
    float4 g[VEC];
    #pragma unroll
    for (int i = 0; i < VEC; ++i) g[i] = w[tid + i * THREADS];
    while (true) {
        if (tid == 0) ticket = atomicAdd(&counter[0], 1u);
        __syncthreads();
        const unsigned int first = ticket * CHUNK;
        __syncthreads();
        if (first >= (unsigned)rows) break;
        for (int row = first; row < min((int)first + CHUNK, rows); ++row) {
            const size_t base = (size_t)row * VEC * THREADS;
            float4 v[VEC];
            float s = 0.f;
            #pragma unroll
            for (int i = 0; i < VEC; ++i) {
                const float4 a = __ldcs(x + base + tid + i * THREADS), b = __ldcs(res + base + tid + i * THREADS);
                v[i] = make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
                s += v[i].x * v[i].x + v[i].y * v[i].y + v[i].z * v[i].z + v[i].w * v[i].w;
                h[base + tid + i * THREADS] = v[i];
            }
            #pragma unroll
            for (int o = 16; o > 0; o >>= 1) s += __shfl_xor_sync(~0u, s, o);
            if ((tid & 31) == 0) warp_sum[tid >> 5] = s;
            __syncthreads();
            s = 0.f;
            #pragma unroll
            for (int i = 0; i < THREADS / 32; ++i) s += warp_sum[i];
            __syncthreads();
            const float r = rsqrtf(s / (4.f * VEC * THREADS) + eps);
            #pragma unroll
            for (int i = 0; i < VEC; ++i)
                __stcs(y + base + tid + i * THREADS, make_float4(v[i].x * r * g[i].x, v[i].y * r * g[i].y, v[i].z * r * g[i].z, v[i].w * r * g[i].w));
        }
    }
    if (tid == 0) {
        __threadfence();
        if (atomicAdd(&counter[1], 1u) == gridDim.x - 1) {   // everybody has left the loop
            counter[0] = 0u;
            counter[1] = 0u;
        }
    }
}

std::vector<torch::Tensor> rms_residual(torch::Tensor x, torch::Tensor res, torch::Tensor w, torch::Tensor counter, int64_t blocks, double eps) {
    const int D = x.size(-1);
    const int rows = x.numel() / D;
    TORCH_CHECK(D == 1024 || D == 2048 || D == 4096, "hidden size ", D, " is not instantiated");
    auto y = torch::empty_like(x), h = torch::empty_like(x);
    auto stream = at::cuda::getCurrentCUDAStream();
    auto p = [](torch::Tensor& t) { return reinterpret_cast<float4*>(t.data_ptr<float>()); };
    auto c = reinterpret_cast<unsigned int*>(counter.data_ptr<int>());
    if (D == 1024) rms_persistent<1><<<blocks, THREADS, 0, stream>>>(p(x), p(res), p(w), p(y), p(h), c, rows, (float)eps);
    else if (D == 2048) rms_persistent<2><<<blocks, THREADS, 0, stream>>>(p(x), p(res), p(w), p(y), p(h), c, rows, (float)eps);
    else rms_persistent<4><<<blocks, THREADS, 0, stream>>>(p(x), p(res), p(w), p(y), p(h), c, rows, (float)eps);
    return {y, h};
}
"""

cpp_src = "std::vector<torch::Tensor> rms_residual(torch::Tensor x, torch::Tensor res, torch::Tensor w, torch::Tensor counter, int64_t blocks, double eps);"

ext = load_inline(name="rms_persistent_ext", cpp_sources=cpp_src, cuda_sources=cuda_src, functions=["rms_residual"], extra_cuda_cflags=["-O3"])

_COUNTERS = {}


def _scheduler(device):
    """Two zeroed ints and the grid size, once for each device."""
    if device not in _COUNTERS:
        sms = torch.cuda.get_device_properties(device).multi_processor_count
        _COUNTERS[device] = (torch.zeros(2, dtype=torch.int32, device=device), sms * 4)
    return _COUNTERS[device]


class ModelNew(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x, residual):
        counter, blocks = _scheduler(x.device)
        y, h = ext.rms_residual(x.contiguous(), residual.contiguous(), self.weight, counter, blocks, self.eps)
        return y, h
