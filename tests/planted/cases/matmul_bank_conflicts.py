# fault: bank conflicts
# class: latency | compute | memory
# diagnosis: bank-conflicts
# method: pad-shared
# says: the tile of B is stored transposed without padding, so a warp reads one bank 32 times

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.randn(1024, 1024), torch.randn(1024, 1024)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// C = A B for n x n: a block of 32 x 32 threads a tile of C, one element a thread.
__global__ void matmul(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int n) {
    __shared__ float as[32][32], bs[32][32];
    const int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * 32 + ty, column = blockIdx.x * 32 + tx;
    float sum = 0.0f;
    for (int k0 = 0; k0 < n; k0 += 32) {
        as[ty][tx] = a[(size_t)row * n + k0 + tx];
// [good]
        bs[ty][tx] = b[(size_t)(k0 + ty) * n + column];
        __syncthreads();
#pragma unroll
        for (int k = 0; k < 32; k++) sum += as[ty][k] * bs[k][tx];
// [faulty]
        bs[tx][ty] = b[(size_t)(k0 + ty) * n + column];
        __syncthreads();
#pragma unroll
        for (int k = 0; k < 32; k++) sum += as[ty][k] * bs[tx][k];
// [end]
        __syncthreads();
    }
    c[(size_t)row * n + column] = sum;
}

extern "C" int run(const float* a, const float* b, float* c, int n, cudaStream_t stream) {
    matmul<<<dim3(n / 32, n / 32), dim3(32, 32), 0, stream>>>(a, b, c, n);
    return (int)cudaGetLastError();
}
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def forward(self, a, b):
        c = torch.empty_like(a)
        launch("run", a, b, c, a.shape[0])
        return c
