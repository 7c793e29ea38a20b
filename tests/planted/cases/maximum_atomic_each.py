# fault: atomics contention
# class: latency | memory
# diagnosis: atomic-contention
# method: privatise-atomics
# says: the greatest element of each of 16 tensors is found with one atomic per element

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x.abs().amax(dim=1)


def get_inputs():
    return [torch.randn(16, 1048576)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// out[row] = max |x| over a row, as the bits of a float that is not negative: 64 blocks a row
__global__ void clear(unsigned* out) { out[threadIdx.x] = 0; }

__global__ void highest(const float* __restrict__ x, unsigned* __restrict__ out, int n) {
    const float* row = x + (size_t)blockIdx.y * n;
// [good]
    float best = 0.0f;
#pragma unroll 4
    for (int i = blockIdx.x * 512 + threadIdx.x; i < n; i += 64 * 512) best = fmaxf(best, fabsf(row[i]));
    best = block_max(best);
    if (threadIdx.x == 0) atomicMax(out + blockIdx.y, __float_as_uint(best));
// [faulty]
#pragma unroll 4
    for (int i = blockIdx.x * 512 + threadIdx.x; i < n; i += 64 * 512) atomicMax(out + blockIdx.y, __float_as_uint(fabsf(row[i])));
// [end]
}

extern "C" int run(const float* x, unsigned* out, int rows, int n, cudaStream_t stream) {
    clear<<<1, rows, 0, stream>>>(out);
    highest<<<dim3(64, rows), 512, 0, stream>>>(x, out, n);
    return (int)cudaGetLastError();
}
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[0], device=x.device)
        launch("run", x, out, *x.shape)
        return out
