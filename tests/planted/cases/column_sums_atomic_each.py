# fault: atomics contention
# class: latency | memory
# diagnosis: atomic-contention
# method: privatise-atomics
# says: every element is added to its column's sum by a separate atomic

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x.sum(dim=0)


def get_inputs():
    return [torch.randint(-1000, 1000, (16384, 1024), dtype=torch.int32)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// Sums of 1024 columns of integers in 64 bits: a block 64 rows, a thread a column
__global__ void clear(unsigned long long* sums) { sums[threadIdx.x] = 0; }

__global__ void __launch_bounds__(1024) add(const int* __restrict__ x, unsigned long long* __restrict__ sums) {
    const int* rows = x + (size_t)blockIdx.x * 64 * 1024 + threadIdx.x;
// [good]
    long long sum = 0;
#pragma unroll 8
    for (int row = 0; row < 64; row++) sum += rows[row * 1024];
    atomicAdd(sums + threadIdx.x, (unsigned long long)sum);
// [faulty]
#pragma unroll 8
    for (int row = 0; row < 64; row++) atomicAdd(sums + threadIdx.x, (unsigned long long)(long long)rows[row * 1024]);
// [end]
}

extern "C" int run(const int* x, unsigned long long* sums, int rows, cudaStream_t stream) {
    clear<<<1, 1024, 0, stream>>>(sums);
    add<<<rows / 64, 1024, 0, stream>>>(x, sums);
    return (int)cudaGetLastError();
}
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        sums = torch.empty(1024, dtype=torch.int64, device=x.device)
        launch("run", x, sums, x.shape[0])
        return sums
