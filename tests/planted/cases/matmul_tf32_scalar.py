# fault: no tensor cores
# class: compute
# diagnosis: no-tensor-cores
# method: tensor-cores
# precision: tf32
# says: although TF32 is allowed, the product runs on the plain fp32 units

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.randn(4096, 2048), torch.randn(2048, 4096)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
#include <mma.h>
// C[m,n] = A[m,k] B[k,n]
// [good]
// A block of 8 warps a tile of 128 x 128, a warp 32 x 64 of it as 2 x 4 fragments of 16 x 16, 32 of k at a time through shared memory.
using namespace nvcuda;
__global__ void __launch_bounds__(256) matmul(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int n, int k) {
    __shared__ __align__(32) float as[128][36], bs[32][132];
    const int t = threadIdx.x, warp = t / 32, wr = warp / 2 * 32, wc = warp % 2 * 64;
    const size_t row0 = blockIdx.y * 128, column0 = blockIdx.x * 128;
    wmma::fragment<wmma::accumulator, 16, 16, 8, float> sum[2][4];
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 4; j++) wmma::fill_fragment(sum[i][j], 0.0f);
    for (int k0 = 0; k0 < k; k0 += 32) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float4 p = *reinterpret_cast<const float4*>(&a[(row0 + i * 32 + t / 8) * k + k0 + t % 8 * 4]);
            const float4 q = *reinterpret_cast<const float4*>(&b[(size_t)(k0 + i * 8 + t / 32) * n + column0 + t % 32 * 4]);
            float* to = &as[i * 32 + t / 8][t % 8 * 4];
            to[0] = wmma::__float_to_tf32(p.x), to[1] = wmma::__float_to_tf32(p.y);
            to[2] = wmma::__float_to_tf32(p.z), to[3] = wmma::__float_to_tf32(p.w);
            to = &bs[i * 8 + t / 32][t % 32 * 4];
            to[0] = wmma::__float_to_tf32(q.x), to[1] = wmma::__float_to_tf32(q.y);
            to[2] = wmma::__float_to_tf32(q.z), to[3] = wmma::__float_to_tf32(q.w);
        }
        __syncthreads();
#pragma unroll
        for (int kk = 0; kk < 32; kk += 8) {
            wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, wmma::row_major> left[2];
            wmma::fragment<wmma::matrix_b, 16, 16, 8, wmma::precision::tf32, wmma::row_major> right[4];
#pragma unroll
            for (int i = 0; i < 2; i++) wmma::load_matrix_sync(left[i], &as[wr + i * 16][kk], 36);
#pragma unroll
            for (int j = 0; j < 4; j++) wmma::load_matrix_sync(right[j], &bs[kk][wc + j * 16], 132);
#pragma unroll
            for (int i = 0; i < 2; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) wmma::mma_sync(sum[i][j], left[i], right[j], sum[i][j]);
        }
        __syncthreads();
    }
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 4; j++)
            wmma::store_matrix_sync(&c[(row0 + wr + i * 16) * n + column0 + wc + j * 16], sum[i][j], n, wmma::mem_row_major);
}

extern "C" int run(const float* a, const float* b, float* c, int m, int n, int k, cudaStream_t stream) {
    matmul<<<dim3(n / 128, m / 128), 256, 0, stream>>>(a, b, c, n, k);
    return (int)cudaGetLastError();
}
// [faulty]
// Tiles of 128 x 128 through shared memory, 8 x 8 accumulators a thread, 8 of k at a time.
__global__ void __launch_bounds__(256) matmul(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int n, int k) {
    __shared__ __align__(16) float as[8][132], bs[8][128];
    const int t = threadIdx.x, tx = t % 16, ty = t / 16;
    const int row0 = blockIdx.y * 128, column0 = blockIdx.x * 128;
    float sum[8][8] = {};
    for (int k0 = 0; k0 < k; k0 += 8) {
        const float4 p = *reinterpret_cast<const float4*>(&a[(size_t)(row0 + t / 2) * k + k0 + (t % 2) * 4]);
        const int kk = (t % 2) * 4;
        as[kk][t / 2] = p.x;
        as[kk + 1][t / 2] = p.y;
        as[kk + 2][t / 2] = p.z;
        as[kk + 3][t / 2] = p.w;
        *reinterpret_cast<float4*>(&bs[t / 32][(t % 32) * 4]) =
            *reinterpret_cast<const float4*>(&b[(size_t)(k0 + t / 32) * n + column0 + (t % 32) * 4]);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 8; i++) {
            float left[8], right[8];
#pragma unroll
            for (int j = 0; j < 2; j++) {
                *reinterpret_cast<float4*>(&left[j * 4]) = *reinterpret_cast<const float4*>(&as[i][j * 64 + ty * 4]);
                *reinterpret_cast<float4*>(&right[j * 4]) = *reinterpret_cast<const float4*>(&bs[i][j * 64 + tx * 4]);
            }
#pragma unroll
            for (int r = 0; r < 8; r++)
#pragma unroll
                for (int s = 0; s < 8; s++) sum[r][s] += left[r] * right[s];
        }
        __syncthreads();
    }
#pragma unroll
    for (int r = 0; r < 8; r++)
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const size_t row = row0 + (r / 4) * 64 + ty * 4 + r % 4;
            *reinterpret_cast<float4*>(&c[row * n + column0 + j * 64 + tx * 4]) =
                make_float4(sum[r][j * 4], sum[r][j * 4 + 1], sum[r][j * 4 + 2], sum[r][j * 4 + 3]);
        }
}

extern "C" int run(const float* a, const float* b, float* c, int m, int n, int k, cudaStream_t stream) {
    matmul<<<dim3(n / 128, m / 128), 256, 0, stream>>>(a, b, c, n, k);
    return (int)cudaGetLastError();
}
// [end]
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def forward(self, a, b):
        c = torch.empty(a.shape[0], b.shape[1], device=a.device)
        launch("run", a, b, c, a.shape[0], b.shape[1], a.shape[1])
        return c
