# fault: recomputation
# class: compute
# diagnosis: redundant-arithmetic | slow-functions
# method: hoist
# says: a factor that depends only on the column is recomputed for each of 16384 rows

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(2048))

    def forward(self, x):
        return x * torch.tanh(F.softplus(torch.sin(self.w) * torch.erf(self.w)) * torch.cos(self.w))


def get_inputs():
    return [torch.randn(16384, 2048)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// y[row, column] = x[row, column] g(w[column]): a block 256 columns of 64 rows
__device__ float gate(float w) { return tanhf(log1pf(expf(sinf(w) * erff(w))) * cosf(w)); }

__global__ void gated(const float* __restrict__ x, const volatile float* w, float* __restrict__ y, int columns) {
    const int column = blockIdx.x * 256 + threadIdx.x;
    const size_t base = (size_t)blockIdx.y * 64 * columns + column;
// [good]
    const float factor = gate(w[column]);
#pragma unroll 4
    for (int row = 0; row < 64; row++) y[base + (size_t)row * columns] = x[base + (size_t)row * columns] * factor;
// [faulty]
#pragma unroll 4
    for (int row = 0; row < 64; row++) y[base + (size_t)row * columns] = x[base + (size_t)row * columns] * gate(w[column]);
// [end]
}

extern "C" int run(const float* x, const float* w, float* y, int rows, int columns, cudaStream_t stream) {
    gated<<<dim3(columns / 256, rows / 64), 256, 0, stream>>>(x, w, y, columns);
    return (int)cudaGetLastError();
}
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(2048))

    def forward(self, x):
        y = torch.empty_like(x)
        launch("run", x, self.w, y, *x.shape)
        return y
