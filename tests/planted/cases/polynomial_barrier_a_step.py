# fault: needless synchronisation
# class: latency | compute
# diagnosis: barrier-stalls
# method: fewer-barriers
# says: the block waits at a barrier after every step, although its threads share nothing

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        for _ in range(96):
            x = x * 0.96875 + 0.03125
        return x


def get_inputs():
    return [torch.randn(4096, 4096)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// 96 steps of x = 31/32 x + 1/32, rounded after the product as PyTorch does
__global__ void __launch_bounds__(1024) steps(const float* __restrict__ x, float* __restrict__ y, int n) {
    const int i = blockIdx.x * 1024 + threadIdx.x;
    float v = i < n ? x[i] : 0.0f;
#pragma unroll 8
    for (int s = 0; s < 96; s++) {
        v = __fadd_rn(__fmul_rn(v, 0.96875f), 0.03125f);
// [good]
// [faulty]
        __syncthreads();
// [end]
    }
    if (i < n) y[i] = v;
}

extern "C" int run(const float* x, float* y, int n, cudaStream_t stream) {
    steps<<<(n + 1023) / 1024, 1024, 0, stream>>>(x, y, n);
    return (int)cudaGetLastError();
}
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        launch("run", x, y, x.numel())
        return y
