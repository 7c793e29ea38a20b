# fault: fp64 use
# class: compute
# diagnosis: fp64-arithmetic
# method: single-precision
# says: mish is computed with double-precision functions

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return F.mish(x)


def get_inputs():
    return [torch.randn(8192, 4096)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// x tanh(log(1 + e^x))
// [good]
__device__ float mish(float v) { return v * tanhf(v > 20.0f ? v : log1pf(expf(v))); }
// [faulty]
__device__ float mish(double v) { return v * tanh(v > 20.0 ? v : log1p(exp(v))); }
// [end]

__global__ void apply(const float* __restrict__ x, float* __restrict__ y, int n) {
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i < n) y[i] = mish(x[i]);
}

extern "C" int run(const float* x, float* y, int n, cudaStream_t stream) {
    apply<<<(n + 255) / 256, 256, 0, stream>>>(x, y, n);
    return (int)cudaGetLastError();
}
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        launch("run", x, y, x.numel())
        return y
