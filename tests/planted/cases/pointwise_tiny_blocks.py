# fault: low occupancy
# class: occupancy | latency | memory
# diagnosis: low-occupancy
# method: raise-occupancy
# says: blocks have one warp, so 32 blocks per multiprocessor use only half of its warps, and a million blocks have to be started

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.sigmoid(x) * x


def get_inputs():
    return [torch.randn(4096, 8192)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// y = x sigmoid(x), an element a thread
// [good]
#define THREADS 256
// [faulty]
#define THREADS 32
// [end]
__global__ void silu(const float* __restrict__ x, float* __restrict__ y, int n) {
    const int i = blockIdx.x * THREADS + threadIdx.x;
    if (i < n) y[i] = x[i] / (1.0f + expf(-x[i]));
}

extern "C" int run(const float* x, float* y, int n, cudaStream_t stream) {
    silu<<<(n + THREADS - 1) / THREADS, THREADS, 0, stream>>>(x, y, n);
    return (int)cudaGetLastError();
}
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        launch("run", x, y, x.numel())
        return y
