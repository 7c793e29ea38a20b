# fault: load imbalance
# class: occupancy | latency
# diagnosis: load-imbalance
# method: balance-work
# says: each segment gets one block, although one segment has half of the elements

import torch
from torch import nn

LENGTHS = [4194304] + [16384] * 256


class Model(nn.Module):
    def forward(self, x):
        return torch.stack([part.square().sum() for part in torch.split(x, LENGTHS)])


def get_inputs():
    return [torch.randn(8388608)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// Sums of squares of segments: segment 0 has 4194304 floats, 256 more have 16384 each
__device__ float squares(const float4* x, int n) {
    float sum = 0.0f;
#pragma unroll 4
    for (int i = threadIdx.x; i < n; i += 256) {
        const float4 v = x[i];
        sum += v.x * v.x + v.y * v.y + (v.z * v.z + v.w * v.w);
    }
    return block_sum(sum);
}
// [good]
// Every block takes 16384 floats; those of the long segment leave partial sums for a last block.
__global__ void sums(const float4* __restrict__ x, float* __restrict__ scratch, float* __restrict__ out) {
    const float sum = squares(x + (size_t)blockIdx.x * 4096, 4096);
    if (threadIdx.x) return;
    if (blockIdx.x < 256) scratch[blockIdx.x] = sum;
    else out[blockIdx.x - 255] = sum;
}

__global__ void finish(const float* __restrict__ scratch, float* __restrict__ out) {
    const float sum = block_sum(scratch[threadIdx.x]);
    if (threadIdx.x == 0) *out = sum;
}

extern "C" int run(const float4* x, float* scratch, float* out, cudaStream_t stream) {
    sums<<<512, 256, 0, stream>>>(x, scratch, out);
    finish<<<1, 256, 0, stream>>>(scratch, out);
    return (int)cudaGetLastError();
}
// [faulty]
__global__ void sums(const float4* __restrict__ x, float* __restrict__ out) {  // a block a segment
    const int long_one = blockIdx.x == 0;
    const float sum = squares(x + (long_one ? 0 : 1048576 + (size_t)(blockIdx.x - 1) * 4096), long_one ? 1048576 : 4096);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

extern "C" int run(const float4* x, float* scratch, float* out, cudaStream_t stream) {
    sums<<<257, 256, 0, stream>>>(x, out);
    return (int)cudaGetLastError();
}
// [end]
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(257, device=x.device)
        launch("run", x, torch.empty(256, device=x.device), out)
        return out
