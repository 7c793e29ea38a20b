# fault: uncoalesced access
# class: memory
# diagnosis: uncoalesced-access
# method: coalesce
# says: each thread takes 32 neighbouring elements, so a warp's loads and stores are 128 bytes apart

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x * 1.5 + 0.25


def get_inputs():
    return [torch.randn(4096, 4096)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// y = 1.5 x + 0.25; reads and writes 4 bytes an element.
__global__ void affine(const float* __restrict__ x, float* __restrict__ y, int n) {
// [good]
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = x[i] * 1.5f + 0.25f;
// [faulty]
    const int first = (blockIdx.x * blockDim.x + threadIdx.x) * 32;
    for (int i = first; i < first + 32 && i < n; i++) y[i] = x[i] * 1.5f + 0.25f;
// [end]
}

extern "C" int run(const float* x, float* y, int n, cudaStream_t stream) {
    affine<<<(n / 32 + 255) / 256, 256, 0, stream>>>(x, y, n);
    return (int)cudaGetLastError();
}
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        launch("run", x, y, x.numel())
        return y
