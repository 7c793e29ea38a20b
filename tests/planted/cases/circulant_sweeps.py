# fault: cache thrashing
# class: memory
# diagnosis: cache-thrashing
# method: reorder-for-cache
# says: eight rows of 16 MB are mixed one output row at a time, so each input is read from memory eight times

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.taps = nn.Parameter(torch.randn(8))

    def forward(self, x):
        return sum(self.taps[k] * torch.roll(x, -k, 0) for k in range(8))


def get_inputs():
    return [torch.randn(8, 4194304)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// y[m, j] = sum of taps[k] x[(m + k) mod 8, j] over rows of n floats
__global__ void mix(const float* __restrict__ x, const float* __restrict__ taps, float* __restrict__ y, int n) {
// [good]
    const int j = blockIdx.x * 256 + threadIdx.x;  // all eight outputs of a column from one read of its inputs
    float v[8];
#pragma unroll
    for (int k = 0; k < 8; k++) v[k] = x[(size_t)k * n + j];
#pragma unroll
    for (int m = 0; m < 8; m++) {
        float sum = 0.0f;
#pragma unroll
        for (int k = 0; k < 8; k++) sum += taps[k] * v[(m + k) % 8];
        y[(size_t)m * n + j] = sum;
    }
// [faulty]
    const int j = blockIdx.x * 256 + threadIdx.x, m = blockIdx.y;
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < 8; k++) sum += taps[k] * x[(size_t)((m + k) % 8) * n + j];
    y[(size_t)m * n + j] = sum;
// [end]
}

extern "C" int run(const float* x, const float* taps, float* y, int n, cudaStream_t stream) {
// [good]
    mix<<<n / 256, 256, 0, stream>>>(x, taps, y, n);
// [faulty]
    mix<<<dim3(n / 256, 8), 256, 0, stream>>>(x, taps, y, n);
// [end]
    return (int)cudaGetLastError();
}
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.taps = nn.Parameter(torch.randn(8))

    def forward(self, x):
        y = torch.empty_like(x)
        launch("run", x, self.taps, y, x.shape[1])
        return y
