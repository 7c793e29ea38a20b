# task: tasks/agents_cross_entropy.py
# device: cuda
# says: as an agent writes it: scalar output, integer targets, 64 KiB dynamic shared memory, extension kept as an attribute of the module, extra_cflags=[""]
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cpp = """
torch::Tensor cross_entropy_mean(torch::Tensor logits, torch::Tensor targets);
"""

cuda = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <ATen/cuda/CUDAContext.h>

#define FULL 0xffffffff

template <typename T, typename Op>
__device__ __forceinline__ T warp_reduce(T v, Op op) {
    for (int o = 16; o > 0; o >>= 1) v = op(v, __shfl_xor_sync(FULL, v, o));
    return v;
}

struct Max { __device__ float operator()(float a, float b) const { return (a != a || b != b) ? NAN : (a > b ? a : b); } };
struct Sum { __device__ float operator()(float a, float b) const { return a + b; } };

__global__ void row_loss(const float* __restrict__ logits, const long long* __restrict__ targets, float* __restrict__ losses, int vocab) {
    extern __shared__ float row[];
    __shared__ float red[33];
    const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5, warps = blockDim.x >> 5;
    const float* src = logits + (size_t)blockIdx.x * vocab;
    float m = -INFINITY;
    for (int i = tid * 4; i < vocab; i += blockDim.x * 4) {
        float4 v = *reinterpret_cast<const float4*>(src + i);
        *reinterpret_cast<float4*>(row + i) = v;
        m = Max()(m, Max()(Max()(v.x, v.y), Max()(v.z, v.w)));
    }
    m = warp_reduce(m, Max());
    if (lane == 0) red[warp] = m;
    __syncthreads();
    if (warp == 0) {
        m = warp_reduce(lane < warps ? red[lane] : -INFINITY, Max());
        if (lane == 0) red[32] = m;
    }
    __syncthreads();
    m = red[32];
    float s = 0.f;
    for (int i = tid * 4; i < vocab; i += blockDim.x * 4) {
        float4 v = *reinterpret_cast<const float4*>(row + i);
        s += __expf(v.x - m) + __expf(v.y - m) + __expf(v.z - m) + __expf(v.w - m);
    }
    s = warp_reduce(s, Sum());
    __syncthreads();
    if (lane == 0) red[warp] = s;
    __syncthreads();
    if (warp == 0) {
        s = warp_reduce(lane < warps ? red[lane] : 0.f, Sum());
        if (lane == 0) losses[blockIdx.x] = (m - row[targets[blockIdx.x]]) + logf(s);
    }
}

__global__ void mean_kernel(const float* __restrict__ losses, float* __restrict__ out, int n) {
    __shared__ double red[32];
    double s = 0.0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) s += losses[i];
    for (int o = 16; o > 0; o >>= 1) s += __shfl_xor_sync(FULL, s, o);
    if ((threadIdx.x & 31) == 0) red[threadIdx.x >> 5] = s;
    __syncthreads();
    if (threadIdx.x == 0) {
        double t = 0.0;
        for (int w = 0; w < blockDim.x / 32; ++w) t += red[w];
        *out = static_cast<float>(t / n);
    }
}

torch::Tensor cross_entropy_mean(torch::Tensor logits, torch::Tensor targets) {
    TORCH_CHECK(logits.is_cuda() && targets.is_cuda(), "CUDA tensors expected");
    TORCH_CHECK(logits.is_contiguous() && targets.is_contiguous());
    const int n = logits.size(0), vocab = logits.size(1);
    TORCH_CHECK(vocab % 4 == 0);
    auto losses = torch::empty({n}, logits.options());
    auto out = torch::empty({}, logits.options());
    const int smem = vocab * sizeof(float);
    static bool configured = false;
    if (!configured) {
        cudaFuncSetAttribute(row_loss, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 * 1024);
        configured = true;
    }
    auto stream = at::cuda::getCurrentCUDAStream();
    row_loss<<<n, 512, smem, stream>>>(logits.data_ptr<float>(), reinterpret_cast<const long long*>(targets.data_ptr<int64_t>()), losses.data_ptr<float>(), vocab);
    mean_kernel<<<1, 1024, 0, stream>>>(losses.data_ptr<float>(), out.data_ptr<float>(), n);
    cudaError_t err = cudaGetLastError();
    TORCH_CHECK(err == cudaSuccess, "kernel launch failed: ", cudaGetErrorString(err));
    return out;
}
"""

ce = load_inline(name="ce_mean", cpp_sources=cpp, cuda_sources=cuda, functions=["cross_entropy_mean"], verbose=False, extra_cflags=[""], extra_ldflags=[""])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.ce = ce

    def forward(self, logits, targets):
        return self.ce.cross_entropy_mean(logits, targets)
