# fault: fp64 use
# class: compute
# diagnosis: fp64-arithmetic
# method: single-precision
# says: literals without the suffix f make a GELU's arithmetic and its complementary error function double precision

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return F.gelu(x)


def get_inputs():
    return [torch.randn(8192, 8192)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// x times the normal distribution's integral up to x
__global__ void gelu(const float* __restrict__ x, float* __restrict__ y, int n) {
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n) return;
    const float v = x[i];
// [good]
    y[i] = 0.5f * v * (1.0f + erff(v * 0.70710678f));
// [faulty]
    y[i] = 0.5 * v * erfc(v * -0.7071067811865476);
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
