# fault: serial reduction
# class: latency | occupancy
# diagnosis: serial-section
# method: tree-reduction
# says: one thread of each block adds up the partial sums of all 512 threads

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x.square().sum(dim=1)


def get_inputs():
    return [torch.randn(32768, 1024)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// out[row] = sum of squares of 1024 floats: a block of 512 threads a row
__global__ void squares(const float2* __restrict__ x, float* __restrict__ out) {
    const float2 v = x[(size_t)blockIdx.x * 512 + threadIdx.x];
    float sum = v.x * v.x + v.y * v.y;
// [good]
    sum = block_sum(sum);
// [faulty]
    __shared__ float part[512];
    part[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x == 0)
        for (int i = 1; i < 512; i++) sum += part[i];
// [end]
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

extern "C" int run(const float2* x, float* out, int rows, cudaStream_t stream) {
    squares<<<rows, 512, 0, stream>>>(x, out);
    return (int)cudaGetLastError();
}
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[0], device=x.device)
        launch("run", x, out, x.shape[0])
        return out
