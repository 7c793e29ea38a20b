# task: tasks/agents_wgmma_tma.py
# device: cuda
# precision: bf16
# says: as an agent writes it: wgmma, TMA maps by the driver entry point, cached by pointer in a static std::map, setmaxnreg, inference_mode
"""Hopper GEMM: TMA loads into 128B-swizzled shared memory, wgmma.m64n128k16, 4-stage mbarrier pipeline,
one producer warpgroup and two consumer warpgroups, bias + ReLU in the epilogue.

The tensor maps are encoded on the host through the driver entry point (no -lcuda needed) and cached per
(pointer, shape), since encoding costs a few microseconds.
"""
import os

os.environ["TORCH_CUDA_ARCH_LIST"] = "9.0a"

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA_SRC = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <cuda.h>
#include <cuda_bf16.h>
#include <cstdint>
#include <map>
#include <tuple>

namespace {

constexpr int BM = 128, BN = 128, BK = 64, STAGES = 4, THREADS = 384;
constexpr int A_BYTES = BM * BK * 2, B_BYTES = BN * BK * 2, STAGE_BYTES = A_BYTES + B_BYTES;
constexpr int SMEM_BYTES = STAGES * STAGE_BYTES + 1024 + 256;

__device__ __forceinline__ uint32_t smem_ptr(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

__device__ __forceinline__ void mbar_init(uint32_t bar, int count) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count)); }
__device__ __forceinline__ void mbar_expect(uint32_t bar, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
__device__ __forceinline__ void mbar_arrive(uint32_t bar) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory"); }
__device__ __forceinline__ void mbar_wait(uint32_t bar, int parity) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "WAIT_LOOP:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
        "@p bra WAIT_DONE;\n"
        "bra WAIT_LOOP;\n"
        "WAIT_DONE:\n"
        "}\n" ::"r"(bar), "r"(parity) : "memory");
}
__device__ __forceinline__ void tma_load(uint32_t dst, const CUtensorMap* map, uint32_t bar, int c0, int c1) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
                 ::"r"(dst), "l"(reinterpret_cast<uint64_t>(map)), "r"(bar), "r"(c0), "r"(c1) : "memory");
}

// K-major operand, 128-byte swizzle: 8-row groups are 1024 bytes apart
__device__ __forceinline__ uint64_t make_desc(uint32_t addr) {
    uint64_t d = 0;
    d |= static_cast<uint64_t>((addr & 0x3FFFF) >> 4);
    d |= static_cast<uint64_t>(1) << 16;
    d |= static_cast<uint64_t>(1024 >> 4) << 32;
    d |= static_cast<uint64_t>(1) << 62;
    return d;
}

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory"); }
template <int N> __device__ __forceinline__ void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(N) : "memory"); }

__device__ __forceinline__ void wgmma_m64n128k16(float (&d)[64], uint64_t descA, uint64_t descB) {
    asm volatile(
        "{\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "%64, %65, 1, 1, 1, 0, 0;\n"
        "}\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
          "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
          "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
          "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
          "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
          "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
          "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
          "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
        : "l"(descA), "l"(descB));
}

__global__ void __launch_bounds__(THREADS, 1) gemm_kernel(const __grid_constant__ CUtensorMap mapA, const __grid_constant__ CUtensorMap mapB,
                                                          const __nv_bfloat16* __restrict__ bias, __nv_bfloat16* __restrict__ C, int M, int N, int K) {
    extern __shared__ unsigned char raw[];
    const uint32_t base = (smem_ptr(raw) + 1023) & ~1023u;
    const uint32_t bars = base + STAGES * STAGE_BYTES;      // full[STAGES], empty[STAGES]
    const int wg = threadIdx.x / 128;
    const int m0 = blockIdx.y * BM, n0 = blockIdx.x * BN;
    const int tiles = K / BK;

    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            mbar_init(bars + s * 8, 1);
            mbar_init(bars + (STAGES + s) * 8, 2);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async;" ::: "memory");
    }
    __syncthreads();

    if (wg == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 0) {
            for (int t = 0; t < tiles; ++t) {
                const int s = t % STAGES, round = t / STAGES;
                if (round > 0) mbar_wait(bars + (STAGES + s) * 8, (round - 1) & 1);
                const uint32_t full = bars + s * 8, a = base + s * STAGE_BYTES;
                mbar_expect(full, STAGE_BYTES);
                tma_load(a, &mapA, full, t * BK, m0);
                tma_load(a + A_BYTES, &mapB, full, t * BK, n0);
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        const int consumer = wg - 1;
        float d[64];
        #pragma unroll
        for (int i = 0; i < 64; ++i) d[i] = 0.f;
        for (int t = 0; t < tiles; ++t) {
            const int s = t % STAGES, round = t / STAGES;
            mbar_wait(bars + s * 8, round & 1);
            const uint32_t a = base + s * STAGE_BYTES + consumer * 64 * BK * 2, b = base + s * STAGE_BYTES + A_BYTES;
            const uint64_t da = make_desc(a), db = make_desc(b);
            wgmma_fence();
            #pragma unroll
            for (int k = 0; k < BK / 16; ++k) wgmma_m64n128k16(d, da + k * 2, db + k * 2);
            wgmma_commit();
            wgmma_wait<0>();
            if (threadIdx.x % 128 == 0) mbar_arrive(bars + (STAGES + s) * 8);
        }
        const int lane = threadIdx.x % 32, warp = (threadIdx.x % 128) / 32;
        const int row = m0 + consumer * 64 + warp * 16 + lane / 4;
        #pragma unroll
        for (int j = 0; j < 16; ++j) {
            const int col = n0 + j * 8 + (lane % 4) * 2;
            const float b0 = __bfloat162float(bias[col]), b1 = __bfloat162float(bias[col + 1]);
            #pragma unroll
            for (int h = 0; h < 2; ++h) {
                float v0 = d[j * 4 + 2 * h] + b0, v1 = d[j * 4 + 2 * h + 1] + b1;
                v0 = v0 < 0.f ? 0.f : v0;
                v1 = v1 < 0.f ? 0.f : v1;
                *reinterpret_cast<__nv_bfloat162*>(C + (size_t)(row + 8 * h) * N + col) = __floats2bfloat162_rn(v0, v1);
            }
        }
    }
}

using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*, const cuuint64_t*, const cuuint32_t*,
                            const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

Encode encoder() {
    static Encode fn = [] {
        void* p = nullptr;
        cudaDriverEntryPointQueryResult status;
#if CUDART_VERSION >= 12050
        C10_CUDA_CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &p, 12000, cudaEnableDefault, &status));
#else
        C10_CUDA_CHECK(cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &p, cudaEnableDefault, &status));
#endif
        TORCH_CHECK(status == cudaDriverEntryPointSuccess && p, "cuTensorMapEncodeTiled is not available");
        return reinterpret_cast<Encode>(p);
    }();
    return fn;
}

const CUtensorMap& tensor_map(const void* ptr, int rows, int cols, int box_rows) {
    static std::map<std::tuple<const void*, int, int, int>, CUtensorMap> cache;
    auto key = std::make_tuple(ptr, rows, cols, box_rows);
    auto it = cache.find(key);
    if (it != cache.end()) return it->second;
    if (cache.size() > 256) cache.clear();
    CUtensorMap map;
    const cuuint64_t dims[2] = {static_cast<cuuint64_t>(cols), static_cast<cuuint64_t>(rows)};
    const cuuint64_t strides[1] = {static_cast<cuuint64_t>(cols) * 2};
    const cuuint32_t box[2] = {BK, static_cast<cuuint32_t>(box_rows)};
    const cuuint32_t elem[2] = {1, 1};
    CUresult r = encoder()(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<void*>(ptr), dims, strides, box, elem, CU_TENSOR_MAP_INTERLEAVE_NONE,
                           CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    TORCH_CHECK(r == CUDA_SUCCESS, "cuTensorMapEncodeTiled failed: ", static_cast<int>(r));
    return cache.emplace(key, map).first->second;
}

}  // namespace

torch::Tensor linear_relu(torch::Tensor x, torch::Tensor w, torch::Tensor bias) {
    TORCH_CHECK(x.is_contiguous() && w.is_contiguous());
    const int M = x.size(0), K = x.size(1), N = w.size(0);
    TORCH_CHECK(M % BM == 0 && N % BN == 0 && K % BK == 0, "sizes must be multiples of the tile");
    auto out = torch::empty({M, N}, x.options());
    const CUtensorMap ma = tensor_map(x.data_ptr(), M, K, BM);
    const CUtensorMap mb = tensor_map(w.data_ptr(), N, K, BN);
    C10_CUDA_CHECK(cudaFuncSetAttribute(gemm_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SMEM_BYTES));
    gemm_kernel<<<dim3(N / BN, M / BM), THREADS, SMEM_BYTES, at::cuda::getCurrentCUDAStream()>>>(
        ma, mb, reinterpret_cast<const __nv_bfloat16*>(bias.data_ptr()), reinterpret_cast<__nv_bfloat16*>(out.data_ptr()), M, N, K);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
"""

_ext = load_inline(
    name="hopper_linear_relu",
    cpp_sources="torch::Tensor linear_relu(torch::Tensor x, torch::Tensor w, torch::Tensor bias);",
    cuda_sources=CUDA_SRC,
    functions=["linear_relu"],
    extra_cuda_cflags=["-O3", "-std=c++17", "-gencode=arch=compute_90a,code=sm_90a", "--ptxas-options=-v"],
    verbose=False,
)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(out_features, in_features, dtype=torch.bfloat16) * in_features**-0.5)
        self.bias = nn.Parameter(torch.zeros(out_features, dtype=torch.bfloat16))

    @torch.inference_mode()
    def forward(self, x):
        return _ext.linear_relu(x, self.weight, self.bias)
