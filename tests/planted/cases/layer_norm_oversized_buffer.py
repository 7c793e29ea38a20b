# fault: low occupancy
# class: occupancy | latency
# diagnosis: low-occupancy
# method: raise-occupancy
# says: a static buffer for the longest conceivable row leaves room for only four blocks of two warps on a multiprocessor

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return F.layer_norm(x, (1024,))


def get_inputs():
    return [torch.randn(65536, 1024)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// Layer norm of rows of 1024: a block of 64 threads a row, the row cached in shared memory.
// [good]
#define LONGEST 1024
// [faulty]
#define LONGEST 12000
// [end]
__global__ void norm(const float* __restrict__ x, float* __restrict__ y) {
    __shared__ float row[LONGEST];
    const size_t base = (size_t)blockIdx.x * 1024;
    float sum = 0.0f, squares = 0.0f;
    for (int i = threadIdx.x; i < 1024; i += 64) {
        row[i] = x[base + i];
        sum += row[i];
    }
    const float mean = block_sum(sum) / 1024.0f;
    for (int i = threadIdx.x; i < 1024; i += 64) squares += (row[i] - mean) * (row[i] - mean);
    const float scale = rsqrtf(block_sum(squares) / 1024.0f + 1e-5f);
    for (int i = threadIdx.x; i < 1024; i += 64) y[base + i] = (row[i] - mean) * scale;
}

extern "C" int run(const float* x, float* y, int rows, cudaStream_t stream) {
    norm<<<rows, 64, 0, stream>>>(x, y);
    return (int)cudaGetLastError();
}
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        launch("run", x, y, x.shape[0])
        return y
