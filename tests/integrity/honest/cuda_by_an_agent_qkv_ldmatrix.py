# task: tasks/agents_qkv_ldmatrix.py
# device: cuda
# precision: fp16
# says: as an agent writes it: weights concatenated once and checked by data_ptr and _version, cp.async and ldmatrix and mma by PTX, three outputs from one kernel
"""Fused QKV projection.

W = [Wq; Wk; Wv] is concatenated once. The cache is keyed on (data_ptr, _version) of all six parameters, so an optimizer step,
``load_state_dict`` or ``.to()`` rebuilds it.
"""
import torch
import torch.nn as nn
from torch import Tensor
from torch.utils.cpp_extension import load_inline

_CU = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <cuda_fp16.h>
#include <vector>

constexpr int BM = 128, BN = 128, BK = 32, STAGES = 3, PAD = 8, LD = BK + PAD;

__device__ __forceinline__ uint32_t saddr(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }
__device__ __forceinline__ void cp16(void* dst, const void* src) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(saddr(dst)), "l"(src));
}
__device__ __forceinline__ void ldsm4(uint32_t (&r)[4], const void* p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(saddr(p)));
}
__device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// 8 warps: 2 along M, 4 along N; each warp computes 64 x 32.
__global__ void __launch_bounds__(256) qkv_kernel(const half* __restrict__ X, const half* __restrict__ W, const half* __restrict__ bias, half* __restrict__ q,
                                                 half* __restrict__ k, half* __restrict__ v, int K, int nq, int nkv) {
    extern __shared__ __align__(16) half smem[];
    half* As = smem;
    half* Bs = smem + STAGES * BM * LD;
    const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5, wm = (warp & 1) * 64, wn = (warp >> 1) * 32;
    const int m0 = blockIdx.y * BM, n0 = blockIdx.x * BN;
    float acc[4][4][4] = {};
    auto load = [&](int stage, int kt) {
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int c = tid + i * 256, r = c / 4, col = (c % 4) * 8;
            cp16(As + (stage * BM + r) * LD + col, X + (size_t)(m0 + r) * K + kt * BK + col);
            cp16(Bs + (stage * BN + r) * LD + col, W + (size_t)(n0 + r) * K + kt * BK + col);
        }
    };
    const int steps = K / BK;
    #pragma unroll
    for (int s = 0; s < STAGES - 1; ++s) {
        if (s < steps) load(s, s);
        asm volatile("cp.async.commit_group;\n");
    }
    for (int kt = 0; kt < steps; ++kt) {
        asm volatile("cp.async.wait_group %0;\n" ::"n"(STAGES - 2));
        __syncthreads();
        if (kt + STAGES - 1 < steps) load((kt + STAGES - 1) % STAGES, kt + STAGES - 1);
        asm volatile("cp.async.commit_group;\n");
        const half* a = As + (kt % STAGES) * BM * LD;
        const half* b = Bs + (kt % STAGES) * BN * LD;
        #pragma unroll
        for (int kk = 0; kk < BK; kk += 16) {
            uint32_t fa[4][4], fb[2][4];
            #pragma unroll
            for (int i = 0; i < 4; ++i) ldsm4(fa[i], a + (wm + i * 16 + (lane & 15)) * LD + kk + (lane >> 4) * 8);
            #pragma unroll
            for (int j = 0; j < 2; ++j) ldsm4(fb[j], b + (wn + j * 16 + (lane & 7) + (lane >> 4) * 8) * LD + kk + ((lane >> 3) & 1) * 8);
            #pragma unroll
            for (int i = 0; i < 4; ++i)
                #pragma unroll
                for (int j = 0; j < 4; ++j) mma(acc[i][j], fa[i], fb[j / 2][(j % 2) * 2], fb[j / 2][(j % 2) * 2 + 1]);
        }
    }
    // A tile of columns belongs to exactly one of the three outputs.
    half* out = n0 < nq ? q : n0 < nq + nkv ? k : v;
    const int width = n0 < nq ? nq : nkv;
    const int shift = n0 < nq ? 0 : n0 < nq + nkv ? nq : nq + nkv;
    #pragma unroll
    for (int i = 0; i < 4; ++i)
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
            const int row = m0 + wm + i * 16 + lane / 4, col = n0 + wn + j * 8 + (lane % 4) * 2;
            const float2 bb = __half22float2(*reinterpret_cast<const half2*>(bias + col));
            *reinterpret_cast<half2*>(out + (size_t)row * width + col - shift) = __floats2half2_rn(acc[i][j][0] + bb.x, acc[i][j][1] + bb.y);
            *reinterpret_cast<half2*>(out + (size_t)(row + 8) * width + col - shift) = __floats2half2_rn(acc[i][j][2] + bb.x, acc[i][j][3] + bb.y);
        }
}

std::vector<torch::Tensor> qkv(torch::Tensor x, torch::Tensor w, torch::Tensor b, int64_t nq, int64_t nkv) {
    const int K = x.size(-1), M = x.numel() / K;
    TORCH_CHECK(M % BM == 0 && K % BK == 0 && nq % BN == 0 && nkv % BN == 0, "shape is not a multiple of the tile");
    auto shape = x.sizes().vec();
    shape.back() = nq;
    auto q = torch::empty(shape, x.options());
    shape.back() = nkv;
    auto k = torch::empty(shape, x.options()), v = torch::empty(shape, x.options());
    const int bytes = STAGES * (BM + BN) * LD * sizeof(half);
    cudaFuncSetAttribute(qkv_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    auto p = [](const torch::Tensor& t) { return reinterpret_cast<half*>(t.data_ptr<at::Half>()); };
    qkv_kernel<<<dim3((nq + 2 * nkv) / BN, M / BM), 256, bytes, at::cuda::getCurrentCUDAStream()>>>(p(x), p(w), p(b), p(q), p(k), p(v), K, nq, nkv);
    return {q, k, v};
}
"""

_qkv = load_inline(
    name="fused_qkv_ldsm",
    cpp_sources="std::vector<torch::Tensor> qkv(torch::Tensor x, torch::Tensor w, torch::Tensor b, int64_t nq, int64_t nkv);",
    cuda_sources=_CU,
    functions=["qkv"],
    extra_cuda_cflags=["-O3", "--expt-relaxed-constexpr"],
)


class ModelNew(nn.Module):
    def __init__(self, dim, kv_dim):
        super().__init__()
        self.q_proj = nn.Linear(dim, dim, dtype=torch.float16)
        self.k_proj = nn.Linear(dim, kv_dim, dtype=torch.float16)
        self.v_proj = nn.Linear(dim, kv_dim, dtype=torch.float16)
        self._cache_key = None
        self._w: Tensor = None
        self._b: Tensor = None

    def _fused(self):
        parts = (self.q_proj, self.k_proj, self.v_proj)
        key = tuple((p.data_ptr(), p._version) for m in parts for p in (m.weight, m.bias))
        if key != self._cache_key:
            with torch.no_grad():
                self._w = torch.cat([m.weight for m in parts]).contiguous()
                self._b = torch.cat([m.bias for m in parts]).contiguous()
            self._cache_key = key
        return self._w, self._b

    def forward(self, x):
        w, b = self._fused()
        q, k, v = _qkv.qkv(x.contiguous(), w, b, self.q_proj.out_features, self.k_proj.out_features)
        return q, k, v
