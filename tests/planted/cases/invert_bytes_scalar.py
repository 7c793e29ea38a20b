# fault: missing vectorisation
# class: latency | memory
# diagnosis: scalar-access
# method: vectorise
# says: bytes are loaded and stored with one per thread instead of sixteen

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return 255 - x


def get_inputs():
    return [torch.randint(0, 256, (32768, 1024), dtype=torch.uint8)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// y = 255 - x for bytes
// [good]
__global__ void invert(const uint4* __restrict__ x, uint4* __restrict__ y, int n) {  // 255 - b is the complement of the byte
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n / 16) return;
    const uint4 v = x[i];
    y[i] = make_uint4(~v.x, ~v.y, ~v.z, ~v.w);
}

extern "C" int run(const uint4* x, uint4* y, int n, cudaStream_t stream) {
    invert<<<(n / 16 + 255) / 256, 256, 0, stream>>>(x, y, n);
    return (int)cudaGetLastError();
}
// [faulty]
__global__ void invert(const uint8_t* __restrict__ x, uint8_t* __restrict__ y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 255 - x[i];
}

extern "C" int run(const uint8_t* x, uint8_t* y, int n, cudaStream_t stream) {
    invert<<<(n + 255) / 256, 256, 0, stream>>>(x, y, n);
    return (int)cudaGetLastError();
}
// [end]
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        launch("run", x, y, x.numel())
        return y
