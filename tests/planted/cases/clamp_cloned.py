# fault: needless copies
# class: memory
# diagnosis: needless-copy
# method: drop-copies
# says: the input is cloned so that the kernel can work in place, instead of the kernel writing to a new tensor

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.clamp(x * 1.25, -1.0, 1.0)


def get_inputs():
    return [torch.randn(8192, 8192)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// y = clamp(1.25 x, -1, 1)
__device__ __forceinline__ float one(float v) { return fminf(fmaxf(1.25f * v, -1.0f), 1.0f); }

__global__ void clamp(const float4* x, float4* y, int n) {
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n) return;
    const float4 v = x[i];
    y[i] = make_float4(one(v.x), one(v.y), one(v.z), one(v.w));
}

extern "C" int run(const float4* x, float4* y, int n, cudaStream_t stream) {
    clamp<<<(n / 4 + 255) / 256, 256, 0, stream>>>(x, y, n / 4);
    return (int)cudaGetLastError();
}
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        # [good]
        y = torch.empty_like(x)
        # [faulty]
        x = y = x.clone()
        # [end]
        launch("run", x, y, x.numel())
        return y
