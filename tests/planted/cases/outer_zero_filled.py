# fault: needless fill
# class: memory
# diagnosis: needless-fill
# method: drop-fill
# says: the output is filled with zeros before every element of it is overwritten

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, a, b):
        return a[:, None] * b[None, :]


def get_inputs():
    return [torch.randn(16384), torch.randn(8192)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// y[i, j] = a[i] b[j]: a block a row
__global__ void outer(const float* __restrict__ a, const float4* __restrict__ b, float4* __restrict__ y, int n) {
    const float left = a[blockIdx.x];
    for (int j = threadIdx.x; j < n; j += 512) {
        const float4 v = b[j];
        y[(size_t)blockIdx.x * n + j] = make_float4(left * v.x, left * v.y, left * v.z, left * v.w);
    }
}

extern "C" int run(const float* a, const float4* b, float4* y, int rows, int columns, cudaStream_t stream) {
    outer<<<rows, 512, 0, stream>>>(a, b, y, columns / 4);
    return (int)cudaGetLastError();
}
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def forward(self, a, b):
        # [good]
        y = torch.empty(a.shape[0], b.shape[0], device=a.device)
        # [faulty]
        y = torch.zeros(a.shape[0], b.shape[0], device=a.device)
        # [end]
        launch("run", a, b, y, a.shape[0], b.shape[0])
        return y
