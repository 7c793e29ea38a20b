# fault: atomics contention
# class: latency | memory
# diagnosis: atomic-contention
# method: privatise-atomics
# says: eight million counts are added one by one at 32 addresses in global memory

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.bincount(x, minlength=32)


def get_inputs():
    return [torch.randint(0, 32, (8388608,), dtype=torch.int32)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// Counts of 32 values
__global__ void clear(unsigned long long* counts) { counts[threadIdx.x] = 0; }

__global__ void count(const int4* __restrict__ x, unsigned long long* __restrict__ counts, int n) {
// [good]
    __shared__ unsigned own[16][32];  // a histogram a warp
    own[0][threadIdx.x] = 0;
    __syncthreads();
    unsigned* mine = own[threadIdx.x / 32];
    for (int i = blockIdx.x * 512 + threadIdx.x; i < n; i += gridDim.x * 512) {
        const int4 v = x[i];
        atomicAdd(mine + v.x, 1u);
        atomicAdd(mine + v.y, 1u);
        atomicAdd(mine + v.z, 1u);
        atomicAdd(mine + v.w, 1u);
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        unsigned sum = 0;
        for (int k = 0; k < 16; k++) sum += own[k][threadIdx.x];
        atomicAdd(counts + threadIdx.x, (unsigned long long)sum);
    }
// [faulty]
    for (int i = blockIdx.x * 512 + threadIdx.x; i < n; i += gridDim.x * 512) {
        const int4 v = x[i];
        atomicAdd(counts + v.x, 1ull);
        atomicAdd(counts + v.y, 1ull);
        atomicAdd(counts + v.z, 1ull);
        atomicAdd(counts + v.w, 1ull);
    }
// [end]
}

extern "C" int run(const int4* x, unsigned long long* counts, int n, cudaStream_t stream) {
    clear<<<1, 32, 0, stream>>>(counts);
    count<<<528, 512, 0, stream>>>(x, counts, n / 4);
    return (int)cudaGetLastError();
}
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        counts = torch.empty(32, dtype=torch.int64, device=x.device)
        launch("run", x, counts, x.numel())
        return counts
