# fault: no tensor cores
# class: compute
# diagnosis: no-tensor-cores
# method: tensor-cores
# precision: bf16
# says: 16-bit numbers are widened and multiplied on the plain fp32 units

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
#include <cuda_bf16.h>
#include <mma.h>
// C[m,n] = A[m,k] B[k,n] in bf16, sums in fp32
// [good]
// A block of 8 warps a tile of 128 x 128, a warp 32 x 64 of it as 2 x 4 fragments of 16 x 16, 32 of k at a time through shared memory.
using namespace nvcuda;
typedef __nv_bfloat16 half_t;
__global__ void __launch_bounds__(256) matmul(const half_t* __restrict__ a, const half_t* __restrict__ b, half_t* __restrict__ c, int n, int k) {
    __shared__ __align__(32) half_t as[128][40], bs[32][136];
    __shared__ __align__(32) float out[8][16][20];
    const int t = threadIdx.x, warp = t / 32, lane = t % 32, wr = warp / 2 * 32, wc = warp % 2 * 64;
    const size_t row0 = blockIdx.y * 128, column0 = blockIdx.x * 128;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum[2][4];
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 4; j++) wmma::fill_fragment(sum[i][j], 0.0f);
    for (int k0 = 0; k0 < k; k0 += 32) {
#pragma unroll
        for (int i = 0; i < 2; i++) {  // 8 numbers of 16 bits a thread and step
            *reinterpret_cast<uint4*>(&as[i * 64 + t / 4][t % 4 * 8]) = *reinterpret_cast<const uint4*>(&a[(row0 + i * 64 + t / 4) * k + k0 + t % 4 * 8]);
            *reinterpret_cast<uint4*>(&bs[i * 16 + t / 16][t % 16 * 8]) =
                *reinterpret_cast<const uint4*>(&b[(size_t)(k0 + i * 16 + t / 16) * n + column0 + t % 16 * 8]);
        }
        __syncthreads();
#pragma unroll
        for (int kk = 0; kk < 32; kk += 16) {
            wmma::fragment<wmma::matrix_a, 16, 16, 16, half_t, wmma::row_major> left[2];
            wmma::fragment<wmma::matrix_b, 16, 16, 16, half_t, wmma::row_major> right[4];
#pragma unroll
            for (int i = 0; i < 2; i++) wmma::load_matrix_sync(left[i], &as[wr + i * 16][kk], 40);
#pragma unroll
            for (int j = 0; j < 4; j++) wmma::load_matrix_sync(right[j], &bs[kk][wc + j * 16], 136);
#pragma unroll
            for (int i = 0; i < 2; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) wmma::mma_sync(sum[i][j], left[i], right[j], sum[i][j]);
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            wmma::store_matrix_sync(&out[warp][0][0], sum[i][j], 20, wmma::mem_row_major);
            __syncwarp();
            for (int at = lane; at < 256; at += 32)
                c[(row0 + wr + i * 16 + at / 16) * n + column0 + wc + j * 16 + at % 16] = __float2bfloat16(out[warp][at / 16][at % 16]);
            __syncwarp();
        }
}

extern "C" int run(const half_t* a, const half_t* b, half_t* c, int m, int n, int k, cudaStream_t stream) {
    matmul<<<dim3(n / 128, m / 128), 256, 0, stream>>>(a, b, c, n, k);
    return (int)cudaGetLastError();
}
// [faulty]
// Tiles of 64 x 64 through shared memory, 4 x 4 accumulators a thread, 16 of k at a time.
typedef __nv_bfloat16 half_t;
__device__ __forceinline__ void widen(uint2 from, float* to) {
    to[0] = __uint_as_float(from.x << 16);
    to[1] = __uint_as_float(from.x & 0xffff0000u);
    to[2] = __uint_as_float(from.y << 16);
    to[3] = __uint_as_float(from.y & 0xffff0000u);
}

__global__ void __launch_bounds__(256) matmul(const half_t* __restrict__ a, const half_t* __restrict__ b, half_t* __restrict__ c, int n, int k) {
    __shared__ __align__(16) float as[16][68], bs[16][64];
    const int t = threadIdx.x, tx = t % 16, ty = t / 16, row0 = blockIdx.y * 64, column0 = blockIdx.x * 64;
    float sum[4][4] = {};
    for (int k0 = 0; k0 < k; k0 += 16) {
        float p[4], q[4];
        widen(*reinterpret_cast<const uint2*>(&a[(size_t)(row0 + t / 4) * k + k0 + (t % 4) * 4]), p);
        widen(*reinterpret_cast<const uint2*>(&b[(size_t)(k0 + ty) * n + column0 + tx * 4]), q);
        for (int i = 0; i < 4; i++) {
            as[(t % 4) * 4 + i][t / 4] = p[i];
            bs[ty][tx * 4 + i] = q[i];
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 16; i++) {
            const float4 l = *reinterpret_cast<const float4*>(&as[i][ty * 4]), r = *reinterpret_cast<const float4*>(&bs[i][tx * 4]);
            const float left[4] = {l.x, l.y, l.z, l.w}, right[4] = {r.x, r.y, r.z, r.w};
#pragma unroll
            for (int u = 0; u < 4; u++)
#pragma unroll
                for (int v = 0; v < 4; v++) sum[u][v] += left[u] * right[v];
        }
        __syncthreads();
    }
    for (int u = 0; u < 4; u++)
        for (int v = 0; v < 4; v++) c[(size_t)(row0 + ty * 4 + u) * n + column0 + tx * 4 + v] = __float2bfloat16(sum[u][v]);
}

extern "C" int run(const half_t* a, const half_t* b, half_t* c, int m, int n, int k, cudaStream_t stream) {
    matmul<<<dim3(n / 64, m / 64), 256, 0, stream>>>(a, b, c, n, k);
    return (int)cudaGetLastError();
}
// [end]
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def forward(self, a, b):
        c = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
        launch("run", a, b, c, a.shape[0], b.shape[1], a.shape[1])
        return c
