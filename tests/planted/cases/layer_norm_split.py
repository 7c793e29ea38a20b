# fault: split fusion
# class: memory
# diagnosis: split-fusion
# method: fuse-row-reduction
# says: mean and scale, normalisation, and the GELU after it are three kernels that each read the tensor again

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return F.gelu(F.layer_norm(x, (2048,)))


def get_inputs():
    return [torch.randn(16384, 2048)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// gelu(layer norm of rows of 2048): a block of 256 threads a row, 8 values a thread
__device__ __forceinline__ float gelu(float v) { return 0.5f * v * (1.0f + erff(v * 0.70710678f)); }
// [good]
__global__ void fused(const float* __restrict__ x, float* __restrict__ y) {
    const size_t base = (size_t)blockIdx.x * 2048 + threadIdx.x;
    float v[8], sum = 0.0f, squares = 0.0f;
#pragma unroll
    for (int k = 0; k < 8; k++) v[k] = x[base + k * 256];
#pragma unroll
    for (int k = 0; k < 8; k++) sum += v[k];
    const float mean = block_sum(sum) / 2048.0f;
#pragma unroll
    for (int k = 0; k < 8; k++) squares += (v[k] - mean) * (v[k] - mean);
    const float scale = rsqrtf(block_sum(squares) / 2048.0f + 1e-5f);
#pragma unroll
    for (int k = 0; k < 8; k++) y[base + k * 256] = gelu((v[k] - mean) * scale);
}

extern "C" int run(const float* x, float* s, float2* stats, float* y, int rows, cudaStream_t stream) {
    fused<<<rows, 256, 0, stream>>>(x, y);
    return (int)cudaGetLastError();
}
// [faulty]
__global__ void statistics(const float* __restrict__ x, float2* __restrict__ stats) {
    const size_t base = (size_t)blockIdx.x * 2048 + threadIdx.x;
    float v[8], sum = 0.0f, squares = 0.0f;
#pragma unroll
    for (int k = 0; k < 8; k++) v[k] = x[base + k * 256];
#pragma unroll
    for (int k = 0; k < 8; k++) sum += v[k];
    const float mean = block_sum(sum) / 2048.0f;
#pragma unroll
    for (int k = 0; k < 8; k++) squares += (v[k] - mean) * (v[k] - mean);
    squares = block_sum(squares);
    if (threadIdx.x == 0) stats[blockIdx.x] = make_float2(mean, rsqrtf(squares / 2048.0f + 1e-5f));
}

__global__ void normalise(const float* __restrict__ x, const float2* __restrict__ stats, float* __restrict__ s) {
    const size_t base = (size_t)blockIdx.x * 2048 + threadIdx.x;
    const float2 own = stats[blockIdx.x];
#pragma unroll
    for (int k = 0; k < 8; k++) s[base + k * 256] = (x[base + k * 256] - own.x) * own.y;
}

__global__ void activate(const float* __restrict__ s, float* __restrict__ y) {
    const size_t base = (size_t)blockIdx.x * 2048 + threadIdx.x;
#pragma unroll
    for (int k = 0; k < 8; k++) y[base + k * 256] = gelu(s[base + k * 256]);
}

extern "C" int run(const float* x, float* s, float2* stats, float* y, int rows, cudaStream_t stream) {
    statistics<<<rows, 256, 0, stream>>>(x, stats);
    normalise<<<rows, 256, 0, stream>>>(x, stats, s);
    activate<<<rows, 256, 0, stream>>>(s, y);
    return (int)cudaGetLastError();
}
// [end]
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        y, s, stats = torch.empty_like(x), torch.empty_like(x), torch.empty(x.shape[0], 2, device=x.device)
        launch("run", x, s, stats, y, x.shape[0])
        return y
