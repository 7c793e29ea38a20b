# task: tasks/agents_w8a16_wmma.py
# device: cuda
# precision: fp16
# says: as an agent writes it: int8 buffers, built in __init__ into a class attribute, wmma, dynamic shared memory
"""W8A16 GEMM: int8 weights are dequantised on the way into shared memory, the product runs on tensor cores
(nvcuda::wmma), accumulation in fp32, and the per-channel scale is applied in the epilogue."""
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

_CUDA_SOURCE = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

constexpr int BM = 128, BN = 128, BK = 64, PAD = 8, LDS = BK + PAD, LDC = BN + 4;

__global__ void __launch_bounds__(256) w8a16_gemm(const half* __restrict__ X, const int8_t* __restrict__ Q, const half* __restrict__ scale,
                                                  half* __restrict__ Y, int M, int N, int K) {
    extern __shared__ __align__(16) unsigned char raw[];
    half* As = reinterpret_cast<half*>(raw);            // [2][BM][LDS]
    half* Bs = As + 2 * BM * LDS;                       // [2][BN][LDS]
    float* Cs = reinterpret_cast<float*>(raw);          // epilogue reuses the same memory

    const int tid = threadIdx.x, warp = tid >> 5;
    const int wm = warp / 4, wn = warp % 4;             // 2 x 4 warps, 64 x 32 each
    const int m0 = blockIdx.y * BM, n0 = blockIdx.x * BN;

    uint4 xa[4];
    uint2 wq[4];

    auto fetch = [&](int k0) {
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int c = tid + i * 256, r = c >> 3, col = (c & 7) * 8;
            xa[i] = m0 + r < M ? *reinterpret_cast<const uint4*>(X + (size_t)(m0 + r) * K + k0 + col) : make_uint4(0, 0, 0, 0);
            wq[i] = *reinterpret_cast<const uint2*>(Q + (size_t)(n0 + r) * K + k0 + col);
        }
    };
    auto stash = [&](int buf) {
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int c = tid + i * 256, r = c >> 3, col = (c & 7) * 8;
            *reinterpret_cast<uint4*>(As + (buf * BM + r) * LDS + col) = xa[i];
            const int8_t* q = reinterpret_cast<const int8_t*>(&wq[i]);
            half h[8];
            #pragma unroll
            for (int j = 0; j < 8; ++j) h[j] = __int2half_rn(q[j]);
            *reinterpret_cast<uint4*>(Bs + (buf * BN + r) * LDS + col) = *reinterpret_cast<uint4*>(h);
        }
    };

    wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc[4][2];
    #pragma unroll
    for (int i = 0; i < 4; ++i)
        #pragma unroll
        for (int j = 0; j < 2; ++j) wmma::fill_fragment(acc[i][j], 0.f);

    fetch(0);
    stash(0);
    __syncthreads();
    const int steps = K / BK;
    for (int s = 0; s < steps; ++s) {
        const int cur = s & 1;
        if (s + 1 < steps) fetch((s + 1) * BK);
        #pragma unroll
        for (int kk = 0; kk < BK; kk += 16) {
            wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a[4];
            wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> b[2];
            #pragma unroll
            for (int i = 0; i < 4; ++i) wmma::load_matrix_sync(a[i], As + (cur * BM + wm * 64 + i * 16) * LDS + kk, LDS);
            #pragma unroll
            for (int j = 0; j < 2; ++j) wmma::load_matrix_sync(b[j], Bs + (cur * BN + wn * 32 + j * 16) * LDS + kk, LDS);
            #pragma unroll
            for (int i = 0; i < 4; ++i)
                #pragma unroll
                for (int j = 0; j < 2; ++j) wmma::mma_sync(acc[i][j], a[i], b[j], acc[i][j]);
        }
        if (s + 1 < steps) stash(cur ^ 1);
        __syncthreads();
    }

    #pragma unroll
    for (int i = 0; i < 4; ++i)
        #pragma unroll
        for (int j = 0; j < 2; ++j)
            wmma::store_matrix_sync(Cs + (wm * 64 + i * 16) * LDC + wn * 32 + j * 16, acc[i][j], LDC, wmma::mem_row_major);
    __syncthreads();
    for (int c = tid; c < BM * BN / 2; c += 256) {
        const int r = c / (BN / 2), col = (c % (BN / 2)) * 2;
        if (m0 + r < M) {
            const float s0 = __half2float(scale[n0 + col]), s1 = __half2float(scale[n0 + col + 1]);
            *reinterpret_cast<half2*>(Y + (size_t)(m0 + r) * N + n0 + col) = __floats2half2_rn(Cs[r * LDC + col] * s0, Cs[r * LDC + col + 1] * s1);
        }
    }
}

torch::Tensor w8a16_linear(torch::Tensor x, torch::Tensor q, torch::Tensor scale) {
    const at::cuda::OptionalCUDAGuard device_guard(device_of(x));
    TORCH_CHECK(x.scalar_type() == torch::kHalf && q.scalar_type() == torch::kChar && scale.scalar_type() == torch::kHalf);
    const int M = x.size(0), K = x.size(1), N = q.size(0);
    TORCH_CHECK(K % BK == 0 && N % BN == 0);
    auto y = torch::empty({M, N}, x.options());
    const int smem = std::max<int>(2 * (BM + BN) * LDS * sizeof(half), BM * LDC * sizeof(float));
    auto status = cudaFuncSetAttribute(w8a16_gemm, cudaFuncAttributeMaxDynamicSharedMemorySize, smem);
    TORCH_CHECK(status == cudaSuccess, cudaGetErrorString(status));
    w8a16_gemm<<<dim3(N / BN, (M + BM - 1) / BM), 256, smem, at::cuda::getCurrentCUDAStream().stream()>>>(
        reinterpret_cast<const half*>(x.data_ptr()), q.data_ptr<int8_t>(), reinterpret_cast<const half*>(scale.data_ptr()),
        reinterpret_cast<half*>(y.data_ptr()), M, N, K);
    AT_CUDA_CHECK(cudaGetLastError());
    return y;
}
"""


class ModelNew(nn.Module):
    _ext = None  # shared by all instances

    def __init__(self, in_features, out_features):
        super().__init__()
        self.register_buffer("qweight", torch.randint(-127, 128, (out_features, in_features), dtype=torch.int8))
        self.register_buffer("scales", (torch.rand(out_features) * 0.01 + 0.001).to(torch.float16))
        if ModelNew._ext is None:
            ModelNew._ext = load_inline(
                name="w8a16_wmma",
                cpp_sources="torch::Tensor w8a16_linear(torch::Tensor x, torch::Tensor q, torch::Tensor scale);",
                cuda_sources=_CUDA_SOURCE,
                functions=["w8a16_linear"],
                extra_cuda_cflags=["-O3", "-gencode", "arch=compute_90,code=sm_90"],
            )

    def forward(self, x):
        return ModelNew._ext.w8a16_linear(x.contiguous(), self.qweight, self.scales)
