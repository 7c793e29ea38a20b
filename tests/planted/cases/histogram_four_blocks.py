# fault: too few blocks
# class: occupancy | latency
# diagnosis: few-blocks
# method: parallel-split
# says: a histogram of eight million values is computed by four blocks

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.bincount(x, minlength=256)


def get_inputs():
    return [torch.randint(0, 256, (8388608,), dtype=torch.int32)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// Counts of 256 values: a histogram a block in shared memory, added to the result at the end.
// [good]
#define BLOCKS 528
// [faulty]
#define BLOCKS 4
// [end]
__global__ void clear(unsigned long long* counts) { counts[threadIdx.x] = 0; }

__global__ void count(const int4* __restrict__ x, unsigned long long* __restrict__ counts, int n) {
    __shared__ unsigned own[8][256];  // a histogram for every other warp
    for (int i = threadIdx.x; i < 8 * 256; i += 512) own[0][i] = 0;
    __syncthreads();
    unsigned* mine = own[threadIdx.x / 64];
    for (int i = blockIdx.x * 512 + threadIdx.x; i < n; i += BLOCKS * 512) {
        const int4 v = x[i];
        atomicAdd(mine + v.x, 1u);
        atomicAdd(mine + v.y, 1u);
        atomicAdd(mine + v.z, 1u);
        atomicAdd(mine + v.w, 1u);
    }
    __syncthreads();
    if (threadIdx.x < 256) {
        unsigned sum = 0;
        for (int k = 0; k < 8; k++) sum += own[k][threadIdx.x];
        atomicAdd(counts + threadIdx.x, (unsigned long long)sum);
    }
}

extern "C" int run(const int4* x, unsigned long long* counts, int n, cudaStream_t stream) {
    clear<<<1, 256, 0, stream>>>(counts);
    count<<<BLOCKS, 512, 0, stream>>>(x, counts, n / 4);
    return (int)cudaGetLastError();
}
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        counts = torch.empty(256, dtype=torch.int64, device=x.device)
        launch("run", x, counts, x.numel())
        return counts
