# fault: no data reuse
# class: memory | latency | compute
# diagnosis: no-data-reuse
# method: tile-reuse
# says: a matrix product in which every multiplication reads both factors from global memory

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
// C = A B for n x n, n a multiple of 64
// [good]
// Tiles of 64 x 64 through shared memory, 4 x 4 accumulators a thread.
__global__ void __launch_bounds__(256) matmul(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int n) {
    __shared__ __align__(16) float as[16][68], bs[16][64];
    const int t = threadIdx.x, tx = t % 16, ty = t / 16, row0 = blockIdx.y * 64, column0 = blockIdx.x * 64;
    float sum[4][4] = {};
    for (int k0 = 0; k0 < n; k0 += 16) {
        const float4 p = *reinterpret_cast<const float4*>(&a[(size_t)(row0 + t / 4) * n + k0 + (t % 4) * 4]);
        const int kk = (t % 4) * 4;
        as[kk][t / 4] = p.x;
        as[kk + 1][t / 4] = p.y;
        as[kk + 2][t / 4] = p.z;
        as[kk + 3][t / 4] = p.w;
        *reinterpret_cast<float4*>(&bs[ty][tx * 4]) = *reinterpret_cast<const float4*>(&b[(size_t)(k0 + ty) * n + column0 + tx * 4]);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < 16; k++) {
            const float4 l = *reinterpret_cast<const float4*>(&as[k][ty * 4]), r = *reinterpret_cast<const float4*>(&bs[k][tx * 4]);
            const float left[4] = {l.x, l.y, l.z, l.w}, right[4] = {r.x, r.y, r.z, r.w};
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) sum[i][j] += left[i] * right[j];
        }
        __syncthreads();
    }
    for (int i = 0; i < 4; i++)
        *reinterpret_cast<float4*>(&c[(size_t)(row0 + ty * 4 + i) * n + column0 + tx * 4]) = make_float4(sum[i][0], sum[i][1], sum[i][2], sum[i][3]);
}

extern "C" int run(const float* a, const float* b, float* c, int n, cudaStream_t stream) {
    matmul<<<dim3(n / 64, n / 64), 256, 0, stream>>>(a, b, c, n);
    return (int)cudaGetLastError();
}
// [faulty]
__global__ void matmul(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int n) {
    const int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 8 + threadIdx.y;
    float sum = 0.0f;
    for (int k = 0; k < n; k++) sum += a[(size_t)row * n + k] * b[(size_t)k * n + column];
    c[(size_t)row * n + column] = sum;
}

extern "C" int run(const float* a, const float* b, float* c, int n, cudaStream_t stream) {
    matmul<<<dim3(n / 32, n / 8), dim3(32, 8), 0, stream>>>(a, b, c, n);
    return (int)cudaGetLastError();
}
// [end]
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def forward(self, a, b):
        c = torch.empty_like(a)
        launch("run", a, b, c, a.shape[0])
        return c
