# fault: too few blocks
# class: occupancy | latency
# diagnosis: few-blocks
# method: parallel-split
# says: sixteen rows of half a million floats are processed with one block per row

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x * torch.rsqrt((x * x).mean(dim=1, keepdim=True) + 1e-5)


def get_inputs():
    return [torch.randn(16, 524288)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// RMS norm of long rows: sums of parts of a row, then the row scaled by its sum. A block a part.
// [good]
#define PARTS 64
// [faulty]
#define PARTS 1
// [end]
__global__ void sums(const float4* __restrict__ x, float* __restrict__ scratch, int n) {  // n float4 in a row
    const float4* row = x + (size_t)blockIdx.y * n;
    float sum = 0.0f;
#pragma unroll 4
    for (int i = blockIdx.x * 512 + threadIdx.x; i < n; i += PARTS * 512) {
        const float4 v = row[i];
        sum += v.x * v.x + v.y * v.y + (v.z * v.z + v.w * v.w);
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) scratch[blockIdx.y * PARTS + blockIdx.x] = sum;
}

__global__ void scale(const float4* __restrict__ x, const float* __restrict__ scratch, float4* __restrict__ y, int n) {
    const size_t base = (size_t)blockIdx.y * n;
    const float whole = block_sum(threadIdx.x < PARTS ? scratch[blockIdx.y * PARTS + threadIdx.x] : 0.0f);
    const float s = rsqrtf(whole / (4.0f * n) + 1e-5f);
#pragma unroll 4
    for (int i = blockIdx.x * 512 + threadIdx.x; i < n; i += PARTS * 512) {
        const float4 v = x[base + i];
        y[base + i] = make_float4(v.x * s, v.y * s, v.z * s, v.w * s);
    }
}

extern "C" int run(const float4* x, float* scratch, float4* y, int rows, int length, cudaStream_t stream) {
    sums<<<dim3(PARTS, rows), 512, 0, stream>>>(x, scratch, length / 4);
    scale<<<dim3(PARTS, rows), 512, 0, stream>>>(x, scratch, y, length / 4);
    return (int)cudaGetLastError();
}
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        launch("run", x, torch.empty(x.shape[0], 64, device=x.device), y, x.shape[0], x.shape[1])
        return y
