# fault: cold allocation
# class: latency | launch
# diagnosis: cold-allocation
# method: reuse-workspace
# says: the buffer of partial sums is allocated with cudaMalloc and freed in every call

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x * torch.rsqrt((x * x).mean(dim=1, keepdim=True) + 1e-5)


def get_inputs():
    return [torch.randn(32, 262144)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// RMS norm of long rows: sums of 32 parts of a row, then the row scaled by its sum. A block a part.
__global__ void sums(const float4* __restrict__ x, float* __restrict__ scratch, int n) {  // n float4 in a row
    const float4* row = x + (size_t)blockIdx.y * n;
    float sum = 0.0f;
#pragma unroll 4
    for (int i = blockIdx.x * 512 + threadIdx.x; i < n; i += 32 * 512) {
        const float4 v = row[i];
        sum += v.x * v.x + v.y * v.y + (v.z * v.z + v.w * v.w);
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) scratch[blockIdx.y * 32 + blockIdx.x] = sum;
}

__global__ void scale(const float4* __restrict__ x, const float* __restrict__ scratch, float4* __restrict__ y, int n) {
    const size_t base = (size_t)blockIdx.y * n;
    const float s = rsqrtf(warp_sum(scratch[blockIdx.y * 32 + threadIdx.x % 32]) / (4.0f * n) + 1e-5f);
#pragma unroll 4
    for (int i = blockIdx.x * 512 + threadIdx.x; i < n; i += 32 * 512) {
        const float4 v = x[base + i];
        y[base + i] = make_float4(v.x * s, v.y * s, v.z * s, v.w * s);
    }
}

extern "C" int run(const float4* x, float* scratch, float4* y, int rows, int length, cudaStream_t stream) {
// [good]
// [faulty]
    cudaMalloc(&scratch, (size_t)64 << 20);
// [end]
    sums<<<dim3(32, rows), 512, 0, stream>>>(x, scratch, length / 4);
    scale<<<dim3(32, rows), 512, 0, stream>>>(x, scratch, y, length / 4);
// [good]
// [faulty]
    cudaFree(scratch);
// [end]
    return (int)cudaGetLastError();
}
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        launch("run", x, torch.empty(x.shape[0], 32, device=x.device), y, x.shape[0], x.shape[1])
        return y
