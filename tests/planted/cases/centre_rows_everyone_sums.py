# fault: no data reuse
# class: memory | latency | compute
# diagnosis: no-data-reuse
# method: tile-reuse
# says: every thread sums the whole row, although the threads could share one sum

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x - x.mean(dim=1, keepdim=True)


def get_inputs():
    return [torch.randn(65536, 128)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// y = x - mean of its row of 128 floats: a block of 128 threads a row
__global__ void centre(const float* __restrict__ x, float* __restrict__ y) {
    const float* row = x + (size_t)blockIdx.x * 128;
// [good]
    const float own = row[threadIdx.x], sum = block_sum(own);
// [faulty]
    const float own = row[threadIdx.x];
    float sum = 0.0f;
    for (int i = 0; i < 128; i++) sum += row[i];
// [end]
    y[(size_t)blockIdx.x * 128 + threadIdx.x] = own - sum / 128.0f;
}

extern "C" int run(const float* x, float* y, int rows, cudaStream_t stream) {
    centre<<<rows, 128, 0, stream>>>(x, y);
    return (int)cudaGetLastError();
}
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        launch("run", x, y, x.shape[0])
        return y
