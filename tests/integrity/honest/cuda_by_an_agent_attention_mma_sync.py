# task: tasks/agents_attention_mma_sync.py
# device: cuda
# precision: fp16
# says: as an agent writes it: inline PTX (cp.async, ldmatrix, mma.sync), functions as a dict, -arch=sm_90, dynamic shared memory
"""Causal FlashAttention-2 forward for head_dim 64 in fp16, written with inline PTX.

* 64 query rows per CTA, 4 warps, each warp owns 16 rows (m16n8k16 tensor-core tiles)
* K/V tiles of 64 rows, double-buffered with cp.async
* ldmatrix for all fragments, padded shared-memory rows (144 B) -> no bank conflicts
* softmax statistics and the output accumulator stay in fp32 registers
"""
import math

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_src = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <cuda_fp16.h>
#include <stdint.h>

namespace fa {

constexpr int D = 64, BR = 64, BC = 64, STRIDE = 72, THREADS = 128;

__device__ __forceinline__ uint32_t smem_u32(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

__device__ __forceinline__ void cp_async16(void* dst, const void* src) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(smem_u32(dst)), "l"(src));
}
__device__ __forceinline__ void cp_commit() { asm volatile("cp.async.commit_group;\n" ::); }
template <int N> __device__ __forceinline__ void cp_wait() { asm volatile("cp.async.wait_group %0;\n" ::"n"(N)); }

__device__ __forceinline__ void ldsm4(uint32_t (&r)[4], const void* p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(smem_u32(p)));
}
__device__ __forceinline__ void ldsm4t(uint32_t (&r)[4], const void* p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(smem_u32(p)));
}
__device__ __forceinline__ void mma16816(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ uint32_t pack(float lo, float hi) {
    __half2 h = __floats2half2_rn(lo, hi);
    return *reinterpret_cast<uint32_t*>(&h);
}

__device__ __forceinline__ void load_tile(__half* dst, const __half* src, int tid) {
    #pragma unroll
    for (int i = 0; i < (64 * D / 8) / THREADS; ++i) {
        const int c = tid + i * THREADS;
        cp_async16(dst + (c / 8) * STRIDE + (c % 8) * 8, src + (c / 8) * D + (c % 8) * 8);
    }
}

__global__ void __launch_bounds__(THREADS) fwd(const __half* __restrict__ Q, const __half* __restrict__ K, const __half* __restrict__ V,
                                                __half* __restrict__ O, int S, float scale_log2) {
    extern __shared__ __align__(16) __half smem[];
    __half* Qs = smem;
    __half* Ks = Qs + BR * STRIDE;          // two buffers
    __half* Vs = Ks + 2 * BC * STRIDE;      // two buffers

    const int tid = threadIdx.x, warp = tid / 32, lane = tid % 32;
    const int qblock = gridDim.x - 1 - blockIdx.x;      // longest rows first
    const size_t head = (size_t)blockIdx.y * S * D;
    const __half* q = Q + head + (size_t)qblock * BR * D;
    const __half* k = K + head;
    const __half* v = V + head;

    load_tile(Qs, q, tid);
    load_tile(Ks, k, tid);
    load_tile(Vs, v, tid);
    cp_commit();

    uint32_t qf[4][4];
    float o[8][4] = {};
    float m[2] = {-INFINITY, -INFINITY}, l[2] = {0.f, 0.f};
    const int tiles = qblock + 1;

    for (int t = 0; t < tiles; ++t) {
        const int buf = t & 1;
        if (t + 1 < tiles) {
            load_tile(Ks + (buf ^ 1) * BC * STRIDE, k + (size_t)(t + 1) * BC * D, tid);
            load_tile(Vs + (buf ^ 1) * BC * STRIDE, v + (size_t)(t + 1) * BC * D, tid);
            cp_commit();
            cp_wait<1>();
        } else {
            cp_wait<0>();
        }
        __syncthreads();
        if (t == 0) {
            #pragma unroll
            for (int ks = 0; ks < 4; ++ks) ldsm4(qf[ks], Qs + (warp * 16 + lane % 16) * STRIDE + ks * 16 + (lane / 16) * 8);
        }
        const __half* kt = Ks + buf * BC * STRIDE;
        const __half* vt = Vs + buf * BC * STRIDE;

        float s[8][4] = {};
        #pragma unroll
        for (int ks = 0; ks < 4; ++ks) {
            #pragma unroll
            for (int j = 0; j < 4; ++j) {
                uint32_t b[4];
                ldsm4(b, kt + (j * 16 + (lane / 16) * 8 + lane % 8) * STRIDE + ks * 16 + ((lane / 8) % 2) * 8);
                mma16816(s[2 * j], qf[ks], b[0], b[1]);
                mma16816(s[2 * j + 1], qf[ks], b[2], b[3]);
            }
        }

        if (t == qblock) {
            const int row = warp * 16 + lane / 4;
            #pragma unroll
            for (int j = 0; j < 8; ++j) {
                const int col = j * 8 + (lane % 4) * 2;
                if (col > row) s[j][0] = -INFINITY;
                if (col + 1 > row) s[j][1] = -INFINITY;
                if (col > row + 8) s[j][2] = -INFINITY;
                if (col + 1 > row + 8) s[j][3] = -INFINITY;
            }
        }

        #pragma unroll
        for (int h = 0; h < 2; ++h) {
            float mx = m[h];
            #pragma unroll
            for (int j = 0; j < 8; ++j) mx = fmaxf(mx, fmaxf(s[j][2 * h], s[j][2 * h + 1]));
            mx = fmaxf(mx, __shfl_xor_sync(0xffffffffu, mx, 1));
            mx = fmaxf(mx, __shfl_xor_sync(0xffffffffu, mx, 2));
            const float corr = exp2f((m[h] - mx) * scale_log2);
            m[h] = mx;
            float sum = 0.f;
            #pragma unroll
            for (int j = 0; j < 8; ++j) {
                s[j][2 * h] = exp2f((s[j][2 * h] - mx) * scale_log2);
                s[j][2 * h + 1] = exp2f((s[j][2 * h + 1] - mx) * scale_log2);
                sum += s[j][2 * h] + s[j][2 * h + 1];
                o[j][2 * h] *= corr;
                o[j][2 * h + 1] *= corr;
            }
            l[h] = l[h] * corr + sum;
        }

        #pragma unroll
        for (int kk = 0; kk < 4; ++kk) {
            const uint32_t a[4] = {pack(s[2 * kk][0], s[2 * kk][1]), pack(s[2 * kk][2], s[2 * kk][3]),
                                   pack(s[2 * kk + 1][0], s[2 * kk + 1][1]), pack(s[2 * kk + 1][2], s[2 * kk + 1][3])};
            #pragma unroll
            for (int j = 0; j < 4; ++j) {
                uint32_t b[4];
                ldsm4t(b, vt + (kk * 16 + ((lane / 8) % 2) * 8 + lane % 8) * STRIDE + j * 16 + (lane / 16) * 8);
                mma16816(o[2 * j], a, b[0], b[1]);
                mma16816(o[2 * j + 1], a, b[2], b[3]);
            }
        }
        __syncthreads();
    }

    #pragma unroll
    for (int h = 0; h < 2; ++h) {
        float sum = l[h];
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        const float inv = 1.f / sum;
        const size_t row = (size_t)qblock * BR + warp * 16 + lane / 4 + 8 * h;
        #pragma unroll
        for (int j = 0; j < 8; ++j) {
            *reinterpret_cast<__half2*>(O + head + row * D + j * 8 + (lane % 4) * 2) = __floats2half2_rn(o[j][2 * h] * inv, o[j][2 * h + 1] * inv);
        }
    }
}

}  // namespace fa

torch::Tensor flash_fwd(torch::Tensor q, torch::Tensor k, torch::Tensor v, double scale) {
    TORCH_CHECK(q.is_contiguous() && k.is_contiguous() && v.is_contiguous());
    TORCH_CHECK(q.size(3) == fa::D && q.size(2) % fa::BR == 0, "head_dim must be 64 and seq_len a multiple of 64");
    auto o = torch::empty_like(q);
    const int S = q.size(2);
    const int smem = (fa::BR + 4 * fa::BC) * fa::STRIDE * sizeof(__half);
    C10_CUDA_CHECK(cudaFuncSetAttribute(fa::fwd, cudaFuncAttributeMaxDynamicSharedMemorySize, smem));
    dim3 grid(S / fa::BR, q.size(0) * q.size(1));
    fa::fwd<<<grid, fa::THREADS, smem, at::cuda::getCurrentCUDAStream()>>>(
        reinterpret_cast<const __half*>(q.data_ptr<at::Half>()), reinterpret_cast<const __half*>(k.data_ptr<at::Half>()),
        reinterpret_cast<const __half*>(v.data_ptr<at::Half>()), reinterpret_cast<__half*>(o.data_ptr<at::Half>()), S,
        static_cast<float>(scale * 1.4426950408889634));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return o;
}
"""

flash = load_inline(
    name="flash_mma",
    cpp_sources="torch::Tensor flash_fwd(torch::Tensor q, torch::Tensor k, torch::Tensor v, double scale);",
    cuda_sources=cuda_src,
    functions={"flash_fwd": "FlashAttention-2 forward, causal, fp16"},
    extra_cuda_cflags=["-O3", "-arch=sm_90", "-U__CUDA_NO_HALF_OPERATORS__", "-U__CUDA_NO_HALF_CONVERSIONS__", "-Xptxas", "-O3"],
)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, Q, K, V):
        return flash.flash_fwd(Q.contiguous(), K.contiguous(), V.contiguous(), 1.0 / math.sqrt(Q.shape[-1]))
