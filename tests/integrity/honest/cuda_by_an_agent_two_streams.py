# task: tasks/agents_two_streams.py
# device: cuda
# says: as an agent writes it: a side stream from the pool, fork and join events, record_stream, static objects
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_src = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/cuda/CUDAGuard.h>

__global__ void lse_kernel(const float* __restrict__ a, float* __restrict__ out, int n) {
    __shared__ float sm[32], ss[32];
    const float* row = a + (size_t)blockIdx.x * n;
    float m = -INFINITY, s = 0.f;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        const float v = row[i];
        if (v > m) { s = s * expf(m - v) + 1.f; m = v; }
        else s += v == -INFINITY ? 0.f : expf(v - m);
    }
    for (int o = 16; o; o >>= 1) {
        const float m2 = __shfl_xor_sync(~0u, m, o), s2 = __shfl_xor_sync(~0u, s, o);
        const float mm = fmaxf(m, m2);
        s = (m == mm ? s : s * expf(m - mm)) + (m2 == mm ? s2 : s2 * expf(m2 - mm));
        m = mm;
    }
    if (threadIdx.x % 32 == 0) { sm[threadIdx.x / 32] = m; ss[threadIdx.x / 32] = s; }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < blockDim.x / 32; ++w) {
            const float mm = fmaxf(m, sm[w]);
            s = (m == mm ? s : s * expf(m - mm)) + (sm[w] == mm ? ss[w] : ss[w] * expf(sm[w] - mm));
            m = mm;
        }
        out[blockIdx.x] = m + logf(s);
    }
}

__global__ void unit_kernel(const float4* __restrict__ b, float4* __restrict__ out, int n4, float eps) {
    __shared__ float part[8];
    const size_t base = (size_t)blockIdx.x * n4;
    float s = 0.f;
    for (int i = threadIdx.x; i < n4; i += blockDim.x) {
        const float4 v = b[base + i];
        s += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
    }
    for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(~0u, s, o);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = s;
    __syncthreads();
    s = 0.f;
    for (int w = 0; w < blockDim.x / 32; ++w) s += part[w];
    const float norm = sqrtf(s);
    const float d = norm < eps ? eps : norm;
    for (int i = threadIdx.x; i < n4; i += blockDim.x) {
        const float4 v = b[base + i];
        out[base + i] = make_float4(v.x / d, v.y / d, v.z / d, v.w / d);
    }
}

std::tuple<torch::Tensor, torch::Tensor> both(torch::Tensor a, torch::Tensor b, double eps) {
    TORCH_CHECK(a.is_contiguous() && b.is_contiguous() && b.size(1) % 4 == 0);
    auto lse = torch::empty({a.size(0)}, a.options());
    auto unit = torch::empty_like(b);

    auto main = at::cuda::getCurrentCUDAStream();
    static auto side = at::cuda::getStreamFromPool(/*isHighPriority=*/true);
    static at::cuda::CUDAEvent fork, join;

    fork.record(main);
    fork.block(side);
    unit_kernel<<<b.size(0), 256, 0, side>>>(reinterpret_cast<const float4*>(b.data_ptr<float>()), reinterpret_cast<float4*>(unit.data_ptr<float>()),
                                             b.size(1) / 4, (float)eps);
    lse_kernel<<<a.size(0), 256, 0, main>>>(a.data_ptr<float>(), lse.data_ptr<float>(), a.size(1));
    join.record(side);
    join.block(main);
    b.record_stream(side);
    unit.record_stream(side);
    return {lse, unit};
}
"""

_ops = load_inline(
    name="two_stream_stats",
    cpp_sources="std::tuple<torch::Tensor, torch::Tensor> both(torch::Tensor a, torch::Tensor b, double eps);",
    cuda_sources=cuda_src,
    functions=["both"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def __init__(self, eps: float = 1e-12):
        super().__init__()
        self.eps = eps

    def forward(self, a, b):
        return _ops.both(a.contiguous(), b.contiguous(), self.eps)
