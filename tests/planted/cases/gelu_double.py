# fault: fp64 use
# class: compute
# diagnosis: fp64-arithmetic
# method: single-precision
# says: literals without f make a gelu's arithmetic and its tanh double

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return F.gelu(x, approximate="tanh")


def get_inputs():
    return [torch.randn(4096, 4096)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// gelu by its tanh formula
__global__ void gelu(const float* __restrict__ x, float* __restrict__ y, int n) {
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n) return;
    const float v = x[i];
// [good]
    y[i] = 0.5f * v * (1.0f + tanhf(0.79788456f * (v + 0.044715f * v * v * v)));
// [faulty]
    y[i] = 0.5 * v * (1.0 + tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)));
// [end]
}

extern "C" int run(const float* x, float* y, int n, cudaStream_t stream) {
    gelu<<<(n + 255) / 256, 256, 0, stream>>>(x, y, n);
    return (int)cudaGetLastError();
}
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        launch("run", x, y, x.numel())
        return y
