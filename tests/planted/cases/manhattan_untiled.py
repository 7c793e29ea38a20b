# fault: no data reuse
# class: memory | latency | compute
# diagnosis: no-data-reuse
# method: tile-reuse
# says: distances between all pairs, in which every difference reads both vectors from global memory

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, a, b):
        return torch.cdist(a, b.t().contiguous(), p=1.0)


def get_inputs():
    return [torch.randn(1024, 256), torch.randn(256, 1024)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// D[i, j] = sum over k of |A[i, k] - B[k, j]| for 1024 x 256 and 256 x 1024
#define N 1024
#define K 256
// [good]
// Tiles of 64 x 64 through shared memory, 4 x 4 accumulators a thread.
__global__ void __launch_bounds__(256) distances(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ d) {
    __shared__ __align__(16) float as[16][68], bs[16][64];
    const int t = threadIdx.x, tx = t % 16, ty = t / 16, row0 = blockIdx.y * 64, column0 = blockIdx.x * 64;
    float sum[4][4] = {};
    for (int k0 = 0; k0 < K; k0 += 16) {
        const float4 p = *reinterpret_cast<const float4*>(&a[(row0 + t / 4) * K + k0 + (t % 4) * 4]);
        const int kk = (t % 4) * 4;
        as[kk][t / 4] = p.x;
        as[kk + 1][t / 4] = p.y;
        as[kk + 2][t / 4] = p.z;
        as[kk + 3][t / 4] = p.w;
        *reinterpret_cast<float4*>(&bs[ty][tx * 4]) = *reinterpret_cast<const float4*>(&b[(k0 + ty) * N + column0 + tx * 4]);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < 16; k++) {
            const float4 l = *reinterpret_cast<const float4*>(&as[k][ty * 4]), r = *reinterpret_cast<const float4*>(&bs[k][tx * 4]);
            const float left[4] = {l.x, l.y, l.z, l.w}, right[4] = {r.x, r.y, r.z, r.w};
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) sum[i][j] += fabsf(left[i] - right[j]);
        }
        __syncthreads();
    }
    for (int i = 0; i < 4; i++)
        *reinterpret_cast<float4*>(&d[(row0 + ty * 4 + i) * N + column0 + tx * 4]) = make_float4(sum[i][0], sum[i][1], sum[i][2], sum[i][3]);
}

extern "C" int run(const float* a, const float* b, float* d, cudaStream_t stream) {
    distances<<<dim3(N / 64, N / 64), 256, 0, stream>>>(a, b, d);
    return (int)cudaGetLastError();
}
// [faulty]
__global__ void distances(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ d) {
    const int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 8 + threadIdx.y;
    float sum = 0.0f;
    for (int k = 0; k < K; k++) sum += fabsf(a[row * K + k] - b[k * N + column]);
    d[row * N + column] = sum;
}

extern "C" int run(const float* a, const float* b, float* d, cudaStream_t stream) {
    distances<<<dim3(N / 32, N / 8), dim3(32, 8), 0, stream>>>(a, b, d);
    return (int)cudaGetLastError();
}
// [end]
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def forward(self, a, b):
        d = torch.empty(a.shape[0], b.shape[1], device=a.device)
        launch("run", a, b, d)
        return d
