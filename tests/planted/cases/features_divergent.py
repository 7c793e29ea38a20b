# fault: warp divergence
# class: compute | latency
# diagnosis: warp-divergence
# method: uniform-branches
# says: eight features need eight different functions, and adjacent lanes of a warp have different features

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        f = x.unbind(1)
        parts = [torch.sin(f[0]), torch.cos(f[1]), torch.exp(-f[2].abs()), torch.log1p(f[3].abs())]
        parts += [torch.tanh(f[4]), torch.atan(f[5]), torch.erf(f[6]), torch.sqrt(f[7].abs())]
        return torch.stack(parts, dim=1)


def get_inputs():
    return [torch.randn(2097152, 8)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// y[i, f] = function f of x[i, f], 8 features: a block 256 rows, staged through shared memory
__device__ float apply(int f, float v) {
    switch (f) {
        case 0: return sinf(v);
        case 1: return cosf(v);
        case 2: return expf(-fabsf(v));
        case 3: return log1pf(fabsf(v));
        case 4: return tanhf(v);
        case 5: return atanf(v);
        case 6: return erff(v);
        default: return sqrtf(fabsf(v));
    }
}

__global__ void features(const float* __restrict__ x, float* __restrict__ y) {
    __shared__ float tile[256 * 9];
    const size_t base = (size_t)blockIdx.x * 2048;
    const int t = threadIdx.x;
#pragma unroll
    for (int k = 0; k < 2048; k += 256) tile[(k + t) / 8 * 9 + (k + t) % 8] = x[base + k + t];
    __syncthreads();
// [good]
    const int f = t / 32;  // a warp a feature
#pragma unroll 1
    for (int row = t % 32; row < 256; row += 32) tile[row * 9 + f] = apply(f, tile[row * 9 + f]);
// [faulty]
    const int f = t % 8;  // a lane a feature
#pragma unroll 1
    for (int row = t / 8; row < 256; row += 32) tile[row * 9 + f] = apply(f, tile[row * 9 + f]);
// [end]
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 2048; k += 256) y[base + k + t] = tile[(k + t) / 8 * 9 + (k + t) % 8];
}

extern "C" int run(const float* x, float* y, int rows, cudaStream_t stream) {
    features<<<rows / 256, 256, 0, stream>>>(x, y);
    return (int)cudaGetLastError();
}
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        launch("run", x, y, x.shape[0])
        return y
