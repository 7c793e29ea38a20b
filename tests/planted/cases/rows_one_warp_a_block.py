# fault: low occupancy
# class: occupancy | latency
# diagnosis: low-occupancy
# method: raise-occupancy
# says: long rows are processed by blocks of one warp, so a multiprocessor holds four warps

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x.abs().sum(dim=1)


def get_inputs():
    return [torch.randn(528, 32768)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// out[row] = sum of |x| over 32768 floats, a block a row
// [good]
#define THREADS 512
// [faulty]
#define THREADS 32
// [end]
__global__ void norm(const float* __restrict__ x, float* __restrict__ out) {
    const float4* row = reinterpret_cast<const float4*>(x) + (size_t)blockIdx.x * 8192;
    float sum = 0.0f;
#pragma unroll 2
    for (int i = threadIdx.x; i < 8192; i += THREADS) {
        const float4 v = row[i];
        sum += fabsf(v.x) + fabsf(v.y) + (fabsf(v.z) + fabsf(v.w));
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

extern "C" int run(const float* x, float* out, int rows, cudaStream_t stream) {
    norm<<<rows, THREADS, 0, stream>>>(x, out);
    return (int)cudaGetLastError();
}
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[0], device=x.device)
        launch("run", x, out, x.shape[0])
        return out
