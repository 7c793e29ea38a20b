# fault: split fusion
# class: memory
# diagnosis: split-fusion
# method: fuse-row-reduction
# says: the difference and its square are materialised in memory before their rows are summed

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, a, b):
        return (a - b).square().mean(dim=1)


def get_inputs():
    return [torch.randn(16384, 2048), torch.randn(16384, 2048)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// out[row] = mean of (a - b)^2 over rows of 2048: a block of 256 threads a row
// [good]
__global__ void fused(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ out) {
    const size_t base = (size_t)blockIdx.x * 2048 + threadIdx.x;
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < 8; k++) {
        const float d = a[base + k * 256] - b[base + k * 256];
        sum += d * d;
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) out[blockIdx.x] = sum / 2048.0f;
}

extern "C" int run(const float* a, const float* b, float* s, float* out, int rows, cudaStream_t stream) {
    fused<<<rows, 256, 0, stream>>>(a, b, out);
    return (int)cudaGetLastError();
}
// [faulty]
__global__ void subtract(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ s) {
    const size_t base = (size_t)blockIdx.x * 2048 + threadIdx.x;
#pragma unroll
    for (int k = 0; k < 8; k++) s[base + k * 256] = a[base + k * 256] - b[base + k * 256];
}

__global__ void square(float* __restrict__ s) {
    const size_t base = (size_t)blockIdx.x * 2048 + threadIdx.x;
#pragma unroll
    for (int k = 0; k < 8; k++) s[base + k * 256] *= s[base + k * 256];
}

__global__ void means(const float* __restrict__ s, float* __restrict__ out) {
    const size_t base = (size_t)blockIdx.x * 2048 + threadIdx.x;
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < 8; k++) sum += s[base + k * 256];
    sum = block_sum(sum);
    if (threadIdx.x == 0) out[blockIdx.x] = sum / 2048.0f;
}

extern "C" int run(const float* a, const float* b, float* s, float* out, int rows, cudaStream_t stream) {
    subtract<<<rows, 256, 0, stream>>>(a, b, s);
    square<<<rows, 256, 0, stream>>>(s);
    means<<<rows, 256, 0, stream>>>(s, out);
    return (int)cudaGetLastError();
}
// [end]
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def forward(self, a, b):
        s, out = torch.empty_like(a), torch.empty(a.shape[0], device=a.device)
        launch("run", a, b, s, out, a.shape[0])
        return out
