# fault: uncoalesced access
# class: memory
# diagnosis: uncoalesced-access
# method: coalesce
# says: a warp's lanes run over channels, which are 16 KB apart, instead of over adjacent positions

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
// RMS over 32 channels of x[batch, 32, 4096], place by place.
// [good]
__global__ void norm(const float* __restrict__ x, float* __restrict__ y) {  // a thread a place; its 32 values stay in registers
    const int place = blockIdx.x * blockDim.x + threadIdx.x;
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

extern "C" int run(const float* x, float* y, int batch, cudaStream_t stream) {
    norm<<<batch * 4096 / 128, 128, 0, stream>>>(x, y);
    return (int)cudaGetLastError();
}
// [faulty]
__global__ void norm(const float* __restrict__ x, float* __restrict__ y) {  // a warp a place, a lane a channel
    const int place = blockIdx.x * 8 + threadIdx.x / 32;
    const size_t at = (size_t)(place / 4096) * 32 * 4096 + place % 4096 + (threadIdx.x % 32) * 4096;
    const float v = x[at];
    y[at] = v * rsqrtf(warp_sum(v * v) / 32.0f + 1e-5f);
}

extern "C" int run(const float* x, float* y, int batch, cudaStream_t stream) {
    norm<<<batch * 4096 / 8, 256, 0, stream>>>(x, y);
    return (int)cudaGetLastError();
}
// [end]
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        launch("run", x, y, x.shape[0])
        return y
