# fault: register spills
# class: memory | latency | compute
# diagnosis: register-spills
# method: relieve-registers
# says: launch bounds of eight blocks per multiprocessor leave 32 registers for 64 accumulators

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.randn(2048, 1024), torch.randn(1024, 2048)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// C[m,n] = A[m,k] B[k,n]: tiles of 128 x 128, 256 threads with 8 x 8 accumulators each; m, n multiples of 128, k of 8.
__global__ void
// [good]
__launch_bounds__(256)
// [faulty]
__launch_bounds__(256, 8)
// [end]
matmul(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int n, int k) {
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
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def forward(self, a, b):
        c = torch.empty(a.shape[0], b.shape[1], device=a.device)
        launch("run", a, b, c, a.shape[0], b.shape[1], a.shape[1])
        return c
