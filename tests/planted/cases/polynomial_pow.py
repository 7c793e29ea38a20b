# fault: slow functions
# class: compute
# diagnosis: slow-functions | redundant-arithmetic
# method: cheap-math
# says: the powers in a polynomial are computed with powf

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        s = x.square()
        return 1.0 + 0.5 * s + 0.25 * s * s + 0.125 * s * s * s + 0.0625 * s * s * s * s


def get_inputs():
    return [torch.rand(4096, 4096)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// y = 1 + s / 2 + s^2 / 4 + s^3 / 8 + s^4 / 16 for s = x^2
__global__ void polynomial(const float* __restrict__ x, float* __restrict__ y, int n, float two) {
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n) return;
    const float v = fabsf(x[i]);
// [good]
    const float s = v * v;
    y[i] = 1.0f + s * (0.5f + s * (0.25f + s * (0.125f + s * 0.0625f)));
// [faulty]
    y[i] = 1.0f + 0.5f * powf(v, two) + 0.25f * powf(v, 2 * two) + 0.125f * powf(v, 3 * two) + 0.0625f * powf(v, 4 * two);
// [end]
}

extern "C" int run(const float* x, float* y, int n, cudaStream_t stream) {
    polynomial<<<(n + 255) / 256, 256, 0, stream>>>(x, y, n, 2.0f);
    return (int)cudaGetLastError();
}
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        launch("run", x, y, x.numel())
        return y
