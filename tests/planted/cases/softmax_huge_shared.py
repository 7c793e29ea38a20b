# fault: low occupancy
# class: occupancy | latency
# diagnosis: low-occupancy
# method: raise-occupancy
# says: blocks of 128 threads request 200 KB of shared memory but use 8 KB, so only one fits on a multiprocessor

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)


def get_inputs():
    return [torch.randn(8192, 2048)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// Softmax of rows of 2048: a block of 128 threads a row, the row cached in shared memory.
// [good]
#define SHARED_BYTES (2048 * 4)
// [faulty]
#define SHARED_BYTES (200 * 1024)
// [end]
__global__ void softmax(const float* __restrict__ x, float* __restrict__ y) {
    extern __shared__ float row[];
    const size_t base = (size_t)blockIdx.x * 2048;
    float top = -INFINITY, sum = 0.0f;
#pragma unroll
    for (int i = threadIdx.x; i < 2048; i += 128) {
        row[i] = x[base + i];
        top = fmaxf(top, row[i]);
    }
    top = block_max(top);
    for (int i = threadIdx.x; i < 2048; i += 128) {
        row[i] = expf(row[i] - top);
        sum += row[i];
    }
    const float scale = 1.0f / block_sum(sum);
    for (int i = threadIdx.x; i < 2048; i += 128) y[base + i] = row[i] * scale;
}

extern "C" int run(const float* x, float* y, int rows, cudaStream_t stream) {
    cudaFuncSetAttribute(softmax, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES);
    softmax<<<rows, 128, SHARED_BYTES, stream>>>(x, y);
    return (int)cudaGetLastError();
}
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        launch("run", x, y, x.shape[0])
        return y
