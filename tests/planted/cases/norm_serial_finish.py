# fault: serial reduction
# class: latency | occupancy
# diagnosis: serial-section | few-blocks
# method: tree-reduction
# says: a single thread adds up the 8192 partial sums of the blocks

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x.square().mean().sqrt()


def get_inputs():
    return [torch.randn(4096, 4096)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// Root of the mean square: a partial sum for every 2048 floats, then their sum
__global__ void partial(const float4* __restrict__ x, float* __restrict__ scratch) {
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < 2; k++) {
        const float4 v = x[(size_t)blockIdx.x * 512 + k * 256 + threadIdx.x];
        sum += v.x * v.x + v.y * v.y + (v.z * v.z + v.w * v.w);
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) scratch[blockIdx.x] = sum;
}

__global__ void finish(const float* __restrict__ scratch, float* __restrict__ out, int parts, float scale) {
    double exact = 0.0;
    for (int i = threadIdx.x; i < parts; i += blockDim.x) exact += scratch[i];
    float sum = (float)exact;
// [good]
    sum = block_sum(sum);
// [faulty]
// [end]
    if (threadIdx.x == 0) *out = sqrtf(sum * scale);
}

extern "C" int run(const float4* x, float* scratch, float* out, int n, cudaStream_t stream) {
    const int parts = n / 2048;
    partial<<<parts, 256, 0, stream>>>(x, scratch);
// [good]
    finish<<<1, 1024, 0, stream>>>(scratch, out, parts, 1.0f / n);
// [faulty]
    finish<<<1, 1, 0, stream>>>(scratch, out, parts, 1.0f / n);
// [end]
    return (int)cudaGetLastError();
}
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty((), device=x.device)
        launch("run", x, torch.empty(x.numel() // 2048, device=x.device), out, x.numel())
        return out
