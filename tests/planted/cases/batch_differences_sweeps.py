# fault: cache thrashing
# class: memory
# diagnosis: cache-thrashing
# method: reorder-for-cache
# says: the loop over pairs of samples is outside the loop over positions, so each sample is read from memory many times

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.stack([(x[i] - x[j]).abs() for i in range(6) for j in range(i)]).amax(dim=0)


def get_inputs():
    return [torch.randn(6, 4194304)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// y[p] = greatest |x[i, p] - x[j, p]| over pairs of 6 samples of n floats
// [good]
__global__ void spread(const float4* __restrict__ x, float4* __restrict__ y, int n) {  // n float4 in a sample; all pairs of a place at once
    const int p = blockIdx.x * 256 + threadIdx.x;
    float4 v[6], best = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
    for (int i = 0; i < 6; i++) v[i] = x[(size_t)i * n + p];
#pragma unroll
    for (int i = 1; i < 6; i++)
#pragma unroll
        for (int j = 0; j < i; j++) {
            best.x = fmaxf(best.x, fabsf(v[i].x - v[j].x));
            best.y = fmaxf(best.y, fabsf(v[i].y - v[j].y));
            best.z = fmaxf(best.z, fabsf(v[i].z - v[j].z));
            best.w = fmaxf(best.w, fabsf(v[i].w - v[j].w));
        }
    y[p] = best;
}

extern "C" int run(const float4* x, float4* y, int n, cudaStream_t stream) {
    spread<<<n / 1024, 256, 0, stream>>>(x, y, n / 4);
    return (int)cudaGetLastError();
}
// [faulty]
__global__ void __launch_bounds__(1024, 2) spread(const float4* __restrict__ x, float4* y, int n) {  // every thread goes through its places pair by pair
    for (int i = 1; i < 6; i++)
        for (int j = 0; j < i; j++)
            for (int p = blockIdx.x * 1024 + threadIdx.x; p < n; p += gridDim.x * 1024) {
                const float4 a = x[(size_t)i * n + p], b = x[(size_t)j * n + p];
                float4 best = i == 1 ? make_float4(0.0f, 0.0f, 0.0f, 0.0f) : y[p];
                best.x = fmaxf(best.x, fabsf(a.x - b.x));
                best.y = fmaxf(best.y, fabsf(a.y - b.y));
                best.z = fmaxf(best.z, fabsf(a.z - b.z));
                best.w = fmaxf(best.w, fabsf(a.w - b.w));
                y[p] = best;
            }
}

extern "C" int run(const float4* x, float4* y, int n, cudaStream_t stream) {
    spread<<<264, 1024, 0, stream>>>(x, y, n / 4);
    return (int)cudaGetLastError();
}
// [end]
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x[0])
        launch("run", x, y, x.shape[1])
        return y
