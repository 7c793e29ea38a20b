# fault: warp divergence
# class: compute | latency
# diagnosis: warp-divergence
# method: uniform-branches
# says: each of four consecutive channels takes a different long polynomial, so a warp runs all four

import torch
from torch import nn


class Model(nn.Module):
    def horner(self, x, a, b):
        y = x
        for _ in range(48):
            y = y * a + b
        return y

    def forward(self, x):
        pairs = [(0.5, 0.25), (0.25, 0.5), (-0.5, 0.125), (-0.25, 0.75)]
        return torch.cat([self.horner(x[i::4], a, b) for i, (a, b) in enumerate(pairs)])


def get_inputs():
    return [torch.randn(8388608)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// y[i n / 4 + j] = 48 steps of v = v a_i + b_i from x[4 j + i]; a block 1024 inputs, staged through shared memory
template <int KIND>
__device__ __noinline__ float horner(float v) {
    const float a = KIND == 0 ? 0.5f : KIND == 1 ? 0.25f : KIND == 2 ? -0.5f : -0.25f;
    const float b = KIND == 0 ? 0.25f : KIND == 1 ? 0.5f : KIND == 2 ? 0.125f : 0.75f;
#pragma unroll
    for (int s = 0; s < 48; s++) v = __fadd_rn(__fmul_rn(v, a), b);
    return v;
}

__device__ float apply(int kind, float v) {
    if (kind == 0) return horner<0>(v);
    if (kind == 1) return horner<1>(v);
    if (kind == 2) return horner<2>(v);
    return horner<3>(v);
}

__global__ void steps(const float* __restrict__ x, float* __restrict__ y, int n) {
    __shared__ float tile[4][264];
    const int t = threadIdx.x, base = blockIdx.x * 1024;
#pragma unroll
    for (int k = 0; k < 1024; k += 256) tile[t % 4][(k + t) / 4] = x[base + k + t];
    __syncthreads();
// [good]
#pragma unroll 1
    for (int k = 0; k < 1024; k += 256) {  // warps 0 and 1 the first channel, and so on
        float* own = &tile[t / 64][k / 4 + t % 64];
        *own = apply(t / 64, *own);
    }
// [faulty]
#pragma unroll 1
    for (int k = 0; k < 1024; k += 256) {
        float* own = &tile[t % 4][(k + t) / 4];
        *own = apply(t % 4, *own);
    }
// [end]
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 4; i++) y[i * (n / 4) + base / 4 + t] = tile[i][t];
}

extern "C" int run(const float* x, float* y, int n, cudaStream_t stream) {
    steps<<<n / 1024, 256, 0, stream>>>(x, y, n);
    return (int)cudaGetLastError();
}
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        launch("run", x, y, x.numel())
        return y
