# fault: recomputation
# class: compute
# diagnosis: redundant-arithmetic | slow-functions
# method: hoist
# says: functions that depend only on the row or only on the column are computed for each pair

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, a, b):
        return torch.log1p(a.square()).sin()[:, None] * torch.erf(b).cos()[None, :]


def get_inputs():
    return [torch.randn(4096), torch.randn(4096)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// y[i, j] = f(a[i]) g(b[j]) for 4096 x 4096: a block 256 columns of 64 rows
__device__ float of_row(float v) { return sinf(log1pf(v * v)); }
__device__ float of_column(float v) { return cosf(erff(v)); }

__global__ void outer(const volatile float* a, const volatile float* b, float* __restrict__ y, int n) {
    const int column = blockIdx.x * 256 + threadIdx.x, row0 = blockIdx.y * 64;
// [good]
    __shared__ float rows[64];
    if (threadIdx.x < 64) rows[threadIdx.x] = of_row(a[row0 + threadIdx.x]);
    const float right = of_column(b[column]);
    __syncthreads();
#pragma unroll 4
    for (int i = 0; i < 64; i++) y[(size_t)(row0 + i) * n + column] = rows[i] * right;
// [faulty]
#pragma unroll 4
    for (int i = 0; i < 64; i++) y[(size_t)(row0 + i) * n + column] = of_row(a[row0 + i]) * of_column(b[column]);
// [end]
}

extern "C" int run(const float* a, const float* b, float* y, int n, cudaStream_t stream) {
    outer<<<dim3(n / 256, n / 64), 256, 0, stream>>>(a, b, y, n);
    return (int)cudaGetLastError();
}
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def forward(self, a, b):
        y = torch.empty(a.shape[0], b.shape[0], device=a.device)
        launch("run", a, b, y, a.shape[0])
        return y
