# fault: too few blocks
# class: occupancy | latency
# diagnosis: few-blocks
# method: parallel-split
# says: the sum of a whole tensor is computed by eight blocks

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x.square().sum()


def get_inputs():
    return [torch.randn(4096, 4096)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// Sum of squares: every block one partial sum, then one block over the partial sums.
// [good]
#define BLOCKS 1056
// [faulty]
#define BLOCKS 8
// [end]
__global__ void partial(const float4* __restrict__ x, float* __restrict__ scratch, int n) {
    float sum = 0.0f;
#pragma unroll 4
    for (int i = blockIdx.x * 512 + threadIdx.x; i < n; i += BLOCKS * 512) {
        const float4 v = x[i];
        sum += v.x * v.x + v.y * v.y + (v.z * v.z + v.w * v.w);
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) scratch[blockIdx.x] = sum;
}

__global__ void finish(const float* __restrict__ scratch, float* __restrict__ out) {
    float sum = 0.0f;
    for (int i = threadIdx.x; i < BLOCKS; i += 256) sum += scratch[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) *out = sum;
}

extern "C" int run(const float4* x, float* scratch, float* out, int n, cudaStream_t stream) {
    partial<<<BLOCKS, 512, 0, stream>>>(x, scratch, n / 4);
    finish<<<1, 256, 0, stream>>>(scratch, out);
    return (int)cudaGetLastError();
}
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty((), device=x.device)
        launch("run", x, torch.empty(2048, device=x.device), out, x.numel())
        return out
