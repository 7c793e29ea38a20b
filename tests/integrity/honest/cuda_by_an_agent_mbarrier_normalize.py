# task: tasks/agents_mbarrier_normalize.py
# device: cuda
# says: as an agent writes it: cp.async.bulk into a ring of stages with mbarriers by inline PTX, persistent grid, -gencode for sm_90a, source in two strings
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

PTX = r"""
#include <cstdint>
namespace ptx {
__device__ __forceinline__ uint32_t smem(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void mbar_init(uint64_t* bar, uint32_t count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem(bar)), "r"(count) : "memory");
}
__device__ __forceinline__ void mbar_expect(uint64_t* bar, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem(bar)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void mbar_wait(uint64_t* bar, uint32_t parity) {
    asm volatile(
        "{\n"
        ".reg .pred P;\n"
        "AGAIN:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 P, [%0], %1;\n"
        "@P bra DONE;\n"
        "bra AGAIN;\n"
        "DONE:\n"
        "}\n" ::"r"(smem(bar)), "r"(parity) : "memory");
}
__device__ __forceinline__ void bulk_load(void* dst, const void* src, uint32_t bytes, uint64_t* bar) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(smem(dst)), "l"(src), "r"(bytes),
                 "r"(smem(bar)) : "memory");
}
}
"""

KERNEL = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>

constexpr int DIM = 2048, STAGES = 4, THREADS = 256;

__global__ void __launch_bounds__(THREADS) normalize_ring(const float* __restrict__ x, const float* __restrict__ gain, float* __restrict__ y, int rows) {
    __shared__ alignas(128) float stage[STAGES][DIM];
    __shared__ alignas(8) uint64_t full[STAGES];
    __shared__ float part[THREADS / 32];
    const int tid = threadIdx.x;
    if (tid == 0) {
        for (int s = 0; s < STAGES; ++s) ptx::mbar_init(&full[s], 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    auto fetch = [&](int s, int row) {
        ptx::mbar_expect(&full[s], DIM * 4);
        ptx::bulk_load(stage[s], x + (size_t)row * DIM, DIM * 4, &full[s]);
    };
    if (tid == 0)
        for (int s = 0; s < STAGES; ++s) {
            const int row = blockIdx.x + s * gridDim.x;
            if (row < rows) fetch(s, row);
        }
    const float4 g0 = reinterpret_cast<const float4*>(gain)[tid], g1 = reinterpret_cast<const float4*>(gain)[tid + THREADS];
    int s = 0, phase = 0;
    for (int row = blockIdx.x; row < rows; row += gridDim.x) {
        ptx::mbar_wait(&full[s], phase);
        const float4 a = reinterpret_cast<const float4*>(stage[s])[tid], b = reinterpret_cast<const float4*>(stage[s])[tid + THREADS];
        float q = a.x * a.x + a.y * a.y + a.z * a.z + a.w * a.w + b.x * b.x + b.y * b.y + b.z * b.z + b.w * b.w;
        #pragma unroll
        for (int o = 16; o > 0; o >>= 1) q += __shfl_xor_sync(~0u, q, o);
        if (tid % 32 == 0) part[tid / 32] = q;
        __syncthreads();                                   // everybody has read this stage
        if (tid == 0) {
            const int next = row + STAGES * gridDim.x;
            if (next < rows) fetch(s, next);
        }
        q = 0.f;
        #pragma unroll
        for (int w = 0; w < THREADS / 32; ++w) q += part[w];
        float norm = sqrtf(q);
        norm = norm < 1e-12f ? 1e-12f : norm;
        float4* out = reinterpret_cast<float4*>(y + (size_t)row * DIM);
        __stcs(out + tid, make_float4(a.x / norm * g0.x, a.y / norm * g0.y, a.z / norm * g0.z, a.w / norm * g0.w));
        __stcs(out + tid + THREADS, make_float4(b.x / norm * g1.x, b.y / norm * g1.y, b.z / norm * g1.z, b.w / norm * g1.w));
        __syncthreads();                                   // part is read before it is written again
        if (++s == STAGES) { s = 0; phase ^= 1; }
    }
}

torch::Tensor normalize(torch::Tensor x, torch::Tensor gain) {
    TORCH_CHECK(x.size(-1) == DIM && gain.numel() == DIM, "this kernel is made for ", DIM, " features");
    auto y = torch::empty_like(x);
    const int rows = x.numel() / DIM;
    const int blocks = std::min(rows, at::cuda::getCurrentDeviceProperties()->multiProcessorCount * 4);
    normalize_ring<<<blocks, THREADS, 0, at::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(), gain.data_ptr<float>(), y.data_ptr<float>(), rows);
    AT_CUDA_CHECK(cudaGetLastError());
    return y;
}
"""

_ops = load_inline(
    name="normalize_ring",
    cpp_sources=["torch::Tensor normalize(torch::Tensor x, torch::Tensor gain);"],
    cuda_sources=[PTX + KERNEL],
    functions=["normalize"],
    extra_cuda_cflags=["-O3", "-gencode=arch=compute_90a,code=sm_90a"],
    extra_cflags=["-O2"],
)


class ModelNew(nn.Module):
    def __init__(self, dim: int):
        super().__init__()
        self.gain = nn.Parameter(torch.rand(dim) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _ops.normalize(x.contiguous(), self.gain)
