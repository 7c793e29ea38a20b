# fault: cold allocation
# class: latency | launch
# diagnosis: cold-allocation
# method: reuse-workspace
# says: PyTorch's memory cache is emptied before every call, so each allocation goes to the driver

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) ** 2


def get_inputs():
    return [torch.randn(4096, 4096)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// y = relu(x)^2
__device__ __forceinline__ float one(float v) { return v > 0.0f ? v * v : 0.0f; }

__global__ void square(const float4* __restrict__ x, float4* __restrict__ y, int n) {
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n) return;
    const float4 v = x[i];
    y[i] = make_float4(one(v.x), one(v.y), one(v.z), one(v.w));
}

extern "C" int run(const float4* x, float4* y, int n, cudaStream_t stream) {
    square<<<(n / 4 + 255) / 256, 256, 0, stream>>>(x, y, n / 4);
    return (int)cudaGetLastError();
}
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        # [good]
        # [faulty]
        torch.cuda.empty_cache()
        # [end]
        y = torch.empty_like(x)
        launch("run", x, y, x.numel())
        return y
