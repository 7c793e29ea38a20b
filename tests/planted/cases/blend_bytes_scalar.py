# fault: missing vectorisation
# class: latency | memory
# diagnosis: scalar-access
# method: vectorise
# says: two images of bytes are combined with one byte per thread instead of sixteen

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, a, b):
        return torch.bitwise_xor(torch.bitwise_and(a, b), 85)


def get_inputs():
    return [torch.randint(0, 256, (65536, 1024), dtype=torch.uint8), torch.randint(0, 256, (65536, 1024), dtype=torch.uint8)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// y = (a & b) ^ 85 for bytes
// [good]
__global__ void blend(const uint4* __restrict__ a, const uint4* __restrict__ b, uint4* __restrict__ y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n / 16) return;
    const uint4 p = a[i], q = b[i];
    const unsigned m = 0x55555555u;
    y[i] = make_uint4((p.x & q.x) ^ m, (p.y & q.y) ^ m, (p.z & q.z) ^ m, (p.w & q.w) ^ m);
}

extern "C" int run(const uint4* a, const uint4* b, uint4* y, int n, cudaStream_t stream) {
    blend<<<(n / 16 + 255) / 256, 256, 0, stream>>>(a, b, y, n);
    return (int)cudaGetLastError();
}
// [faulty]
__global__ void blend(const uint8_t* __restrict__ a, const uint8_t* __restrict__ b, uint8_t* __restrict__ y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = (a[i] & b[i]) ^ 85;
}

extern "C" int run(const uint8_t* a, const uint8_t* b, uint8_t* y, int n, cudaStream_t stream) {
    blend<<<(n + 255) / 256, 256, 0, stream>>>(a, b, y, n);
    return (int)cudaGetLastError();
}
// [end]
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def forward(self, a, b):
        y = torch.empty_like(a)
        launch("run", a, b, y, a.numel())
        return y
