# fault: needless copies
# class: memory
# diagnosis: needless-copy
# method: drop-copies
# says: the tensor is permuted before the kernel and permuted back after it

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x * torch.rsqrt((x * x).mean(dim=1, keepdim=True) + 1e-5)


def get_inputs():
    return [torch.randn(128, 32, 4096)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// RMS over 32 channels
// [good]
__global__ void norm(const float* __restrict__ x, float* __restrict__ y) {  // x[batch, 32, 4096]: a thread a place
    const int place = blockIdx.x * 128 + threadIdx.x;
    const size_t base = (size_t)(place / 4096) * 32 * 4096 + place % 4096;
    float v[32], sum = 0.0f;
#pragma unroll
    for (int c = 0; c < 32; c++) v[c] = x[base + c * 4096];
#pragma unroll
    for (int c = 0; c < 32; c++) sum += v[c] * v[c];
    const float scale = rsqrtf(sum / 32.0f + 1e-5f);
#pragma unroll
    for (int c = 0; c < 32; c++) y[base + c * 4096] = v[c] * scale;
}

extern "C" int run(const float* x, float* y, int places, cudaStream_t stream) {
    norm<<<places / 128, 128, 0, stream>>>(x, y);
    return (int)cudaGetLastError();
}
// [faulty]
__global__ void norm(const float* __restrict__ x, float* __restrict__ y) {  // x[places, 32]: a warp a place
    const size_t at = (size_t)blockIdx.x * 256 + threadIdx.x;
    const float v = x[at];
    y[at] = v * rsqrtf(warp_sum(v * v) / 32.0f + 1e-5f);
}

extern "C" int run(const float* x, float* y, int places, cudaStream_t stream) {
    norm<<<places / 8, 256, 0, stream>>>(x, y);
    return (int)cudaGetLastError();
}
// [end]
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        # [good]
        y = torch.empty_like(x)
        launch("run", x, y, x.shape[0] * x.shape[2])
        return y
        # [faulty]
        ordered = x.permute(0, 2, 1).contiguous()
        y = torch.empty_like(ordered)
        launch("run", ordered, y, x.shape[0] * x.shape[2])
        return y.permute(0, 2, 1).contiguous()
        # [end]
