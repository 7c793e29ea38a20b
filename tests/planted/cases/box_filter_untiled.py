# fault: no data reuse
# class: memory | latency | compute
# diagnosis: no-data-reuse
# method: tile-reuse
# says: a 9 x 9 filter reads 81 inputs for every output from global memory

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.taps = nn.Parameter(torch.randn(9, 9) / 9)

    def forward(self, x):
        return F.conv2d(x[:, None], self.taps[None, None])[:, 0]


def get_inputs():
    return [torch.randn(4, 1032, 1032)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// y[b, i, j] = sum of taps[p, q] x[b, i + p, j + q]; x is 1032 x 1032, y 1024 x 1024
// [good]
// A block makes 64 rows of 32 columns from a tile in shared memory; a thread slides over 8 rows with the inputs in registers.
__global__ void __launch_bounds__(256) filter(const float* __restrict__ x, const float* __restrict__ taps, float* __restrict__ y) {
    __shared__ float tile[72][40];
    const int t = threadIdx.x, i0 = blockIdx.y * 64, j0 = blockIdx.x * 32;
    const float* image = x + (size_t)blockIdx.z * 1032 * 1032;
    for (int at = t; at < 72 * 40; at += 256) tile[at / 40][at % 40] = image[(size_t)(i0 + at / 40) * 1032 + j0 + at % 40];
    __syncthreads();
    const int column = t % 32, row = (t / 32) * 8;
    float sum[8] = {};
#pragma unroll 1
    for (int q = 0; q < 9; q++) {
        float v[16];
#pragma unroll
        for (int i = 0; i < 16; i++) v[i] = tile[row + i][column + q];
#pragma unroll
        for (int p = 0; p < 9; p++) {
            const float tap = __ldg(taps + p * 9 + q);
#pragma unroll
            for (int i = 0; i < 8; i++) sum[i] += tap * v[i + p];
        }
    }
#pragma unroll
    for (int i = 0; i < 8; i++) y[((size_t)blockIdx.z * 1024 + i0 + row + i) * 1024 + j0 + column] = sum[i];
}

extern "C" int run(const float* x, const float* taps, float* y, int images, cudaStream_t stream) {
    filter<<<dim3(32, 16, images), 256, 0, stream>>>(x, taps, y);
    return (int)cudaGetLastError();
}
// [faulty]
__global__ void filter(const float* __restrict__ x, const float* __restrict__ taps, float* __restrict__ y) {
    const int j = blockIdx.x * 32 + threadIdx.x, i = blockIdx.y * 8 + threadIdx.y;
    const float* image = x + (size_t)blockIdx.z * 1032 * 1032;
    float sum = 0.0f;
#pragma unroll 1
    for (int p = 0; p < 9; p++)
        for (int q = 0; q < 9; q++) sum += taps[p * 9 + q] * image[(size_t)(i + p) * 1032 + j + q];
    y[((size_t)blockIdx.z * 1024 + i) * 1024 + j] = sum;
}

extern "C" int run(const float* x, const float* taps, float* y, int images, cudaStream_t stream) {
    filter<<<dim3(32, 128, images), dim3(32, 8), 0, stream>>>(x, taps, y);
    return (int)cudaGetLastError();
}
// [end]
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.taps = nn.Parameter(torch.randn(9, 9) / 9)

    def forward(self, x):
        y = torch.empty(x.shape[0], 1024, 1024, device=x.device)
        launch("run", x, self.taps, y, x.shape[0])
        return y
