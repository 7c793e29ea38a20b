# task: tasks/agents_gemm_bias_gelu.py
# device: cuda
# says: as an agent writes it: gencode for sm_90a, fast math, with_cuda, verbose, SIMT GEMM
"""Fused GEMM + bias + GELU (fp32, SIMT).

128x128x8 block tile, 256 threads, 8x8 register micro-tile per thread, register-prefetched
double buffering of shared memory.  The bias add and the exact erf-GELU run in the epilogue so the
pre-activation never touches HBM.
"""
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <ATen/cuda/CUDAContext.h>

#define BM 128
#define BN 128
#define BK 8
#define TM 8
#define TN 8

__device__ __forceinline__ float gelu_exact(float v) {
    return 0.5f * v * (1.0f + erff(v * 0.70710678118654752440f));
}

__global__ void __launch_bounds__(256) gemm_bias_gelu_kernel(
    const float* __restrict__ A,   // [M, K]
    const float* __restrict__ W,   // [N, K]
    const float* __restrict__ bias,
    float* __restrict__ C,         // [M, N]
    int M, int N, int K) {
    __shared__ float As[2][BK][BM + 4];
    __shared__ float Bs[2][BK][BN + 4];

    const int tid = threadIdx.x;
    const int rowBase = blockIdx.y * BM;
    const int colBase = blockIdx.x * BN;
    const int lr = tid >> 1;          // 0..127
    const int lc = (tid & 1) * 4;     // 0 or 4
    const int ty = tid / 16;
    const int tx = tid % 16;

    const bool aok = rowBase + lr < M;
    const bool bok = colBase + lr < N;
    const float* aptr = A + (size_t)(rowBase + lr) * K + lc;
    const float* bptr = W + (size_t)(colBase + lr) * K + lc;
    const float4 zero = make_float4(0.f, 0.f, 0.f, 0.f);

    float acc[TM][TN] = {};
    float4 ra = aok ? *reinterpret_cast<const float4*>(aptr) : zero;
    float4 rb = bok ? *reinterpret_cast<const float4*>(bptr) : zero;
    As[0][lc + 0][lr] = ra.x; As[0][lc + 1][lr] = ra.y; As[0][lc + 2][lr] = ra.z; As[0][lc + 3][lr] = ra.w;
    Bs[0][lc + 0][lr] = rb.x; Bs[0][lc + 1][lr] = rb.y; Bs[0][lc + 2][lr] = rb.z; Bs[0][lc + 3][lr] = rb.w;
    __syncthreads();

    const int tiles = K / BK;
    for (int t = 0; t < tiles; ++t) {
        const int cur = t & 1;
        if (t + 1 < tiles) {
            ra = aok ? *reinterpret_cast<const float4*>(aptr + (t + 1) * BK) : zero;
            rb = bok ? *reinterpret_cast<const float4*>(bptr + (t + 1) * BK) : zero;
        }
        #pragma unroll
        for (int k = 0; k < BK; ++k) {
            float a[TM], b[TN];
            #pragma unroll
            for (int i = 0; i < TM; ++i) a[i] = As[cur][k][ty * TM + i];
            #pragma unroll
            for (int j = 0; j < 4; ++j) { b[j] = Bs[cur][k][tx * 4 + j]; b[j + 4] = Bs[cur][k][64 + tx * 4 + j]; }
            #pragma unroll
            for (int i = 0; i < TM; ++i)
                #pragma unroll
                for (int j = 0; j < TN; ++j) acc[i][j] = fmaf(a[i], b[j], acc[i][j]);
        }
        if (t + 1 < tiles) {
            const int nxt = cur ^ 1;
            As[nxt][lc + 0][lr] = ra.x; As[nxt][lc + 1][lr] = ra.y; As[nxt][lc + 2][lr] = ra.z; As[nxt][lc + 3][lr] = ra.w;
            Bs[nxt][lc + 0][lr] = rb.x; Bs[nxt][lc + 1][lr] = rb.y; Bs[nxt][lc + 2][lr] = rb.z; Bs[nxt][lc + 3][lr] = rb.w;
            __syncthreads();
        }
    }

    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        const int r = rowBase + ty * TM + i;
        if (r >= M) continue;
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            const int c = colBase + (j < 4 ? tx * 4 + j : 64 + tx * 4 + j - 4);
            if (c < N) C[(size_t)r * N + c] = gelu_exact(acc[i][j] + bias[c]);
        }
    }
}

torch::Tensor gemm_bias_gelu(torch::Tensor x, torch::Tensor w, torch::Tensor b) {
    TORCH_CHECK(x.is_cuda() && w.is_cuda() && b.is_cuda(), "all tensors must be CUDA tensors");
    TORCH_CHECK(x.is_contiguous() && w.is_contiguous() && b.is_contiguous(), "all tensors must be contiguous");
    TORCH_CHECK(x.scalar_type() == torch::kFloat32, "fp32 only");
    const int M = x.size(0), K = x.size(1), N = w.size(0);
    TORCH_CHECK(K % BK == 0, "K must be a multiple of 8");
    auto out = torch::empty({M, N}, x.options());
    dim3 grid((N + BN - 1) / BN, (M + BM - 1) / BM);
    gemm_bias_gelu_kernel<<<grid, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), w.data_ptr<float>(), b.data_ptr<float>(), out.data_ptr<float>(), M, N, K);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
"""

cpp_source = "torch::Tensor gemm_bias_gelu(torch::Tensor x, torch::Tensor w, torch::Tensor b);"

_module = load_inline(
    name="gemm_bias_gelu_ext",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions=["gemm_bias_gelu"],
    extra_cflags=["-O3"],
    extra_cuda_cflags=[
        "-O3",
        "--use_fast_math",
        "-gencode=arch=compute_90a,code=sm_90a",
        "-Xptxas=-v",
        "--expt-relaxed-constexpr",
    ],
    with_cuda=True,
    verbose=True,
)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert x.is_cuda and x.dtype == torch.float32
        return _module.gemm_bias_gelu(x.contiguous(), self.linear.weight, self.linear.bias)
