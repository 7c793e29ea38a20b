# fault: tiny launches
# class: launch
# diagnosis: tiny-launches
# method: batch-launches
# says: a separate kernel is launched for each of 512 rows

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)


def get_inputs():
    return [torch.randn(512, 8192)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// Softmax of rows of 8192: a block of 1024 threads a row, 8 values a thread
__global__ void softmax(const float* __restrict__ x, float* __restrict__ y) {
    const size_t base = (size_t)blockIdx.x * 8192 + threadIdx.x;
    float v[8], top = -INFINITY, sum = 0.0f;
#pragma unroll
    for (int k = 0; k < 8; k++) v[k] = x[base + k * 1024];
#pragma unroll
    for (int k = 0; k < 8; k++) top = fmaxf(top, v[k]);
    top = block_max(top);
#pragma unroll
    for (int k = 0; k < 8; k++) {
        v[k] = expf(v[k] - top);
        sum += v[k];
    }
    const float scale = 1.0f / block_sum(sum);
#pragma unroll
    for (int k = 0; k < 8; k++) y[base + k * 1024] = v[k] * scale;
}

extern "C" int run(const float* x, float* y, int rows, cudaStream_t stream) {
// [good]
    softmax<<<rows, 1024, 0, stream>>>(x, y);
// [faulty]
    for (int row = 0; row < rows; row++) softmax<<<1, 1024, 0, stream>>>(x + (size_t)row * 8192, y + (size_t)row * 8192);
// [end]
    return (int)cudaGetLastError();
}
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        launch("run", x, y, x.shape[0])
        return y
