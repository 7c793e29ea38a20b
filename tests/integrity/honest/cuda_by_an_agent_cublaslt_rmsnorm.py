# task: tasks/agents_cublaslt_rmsnorm.py
# device: cuda
# precision: bf16
# says: as an agent writes it: cuBLASLt by its C API with a bias epilogue, static plan, -lcublasLt, own norm
"""cuBLASLt GEMM with the BIAS epilogue, then a vectorised RMSNorm kernel, both enqueued from one C++ call."""
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cpp_src = "torch::Tensor proj_rmsnorm(torch::Tensor x, torch::Tensor w, torch::Tensor b, torch::Tensor g, double eps);"

cuda_src = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <cublasLt.h>
#include <cuda_bf16.h>

#define CHECK_LT(x) do { cublasStatus_t s_ = (x); TORCH_CHECK(s_ == CUBLAS_STATUS_SUCCESS, "cublasLt error ", int(s_), " at line ", __LINE__); } while (0)

template <int THREADS, int VECS>
__global__ void rmsnorm_inplace(__nv_bfloat16* __restrict__ y, const __nv_bfloat16* __restrict__ g, int n, float eps) {
    __shared__ float part[THREADS / 32];
    uint4* row = reinterpret_cast<uint4*>(y + (size_t)blockIdx.x * n);
    const uint4* gain = reinterpret_cast<const uint4*>(g);
    const int vecs = n / 8;
    uint4 v[VECS];
    float s = 0.f;
    #pragma unroll
    for (int i = 0; i < VECS; ++i) {
        const int c = threadIdx.x + i * THREADS;
        if (c < vecs) {
            v[i] = row[c];
            const __nv_bfloat162* h = reinterpret_cast<const __nv_bfloat162*>(&v[i]);
            #pragma unroll
            for (int j = 0; j < 4; ++j) { const float2 f = __bfloat1622float2(h[j]); s += f.x * f.x + f.y * f.y; }
        }
    }
    for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(~0u, s, o);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = s;
    __syncthreads();
    s = 0.f;
    #pragma unroll
    for (int w = 0; w < THREADS / 32; ++w) s += part[w];
    const float r = rsqrtf(s / n + eps);
    #pragma unroll
    for (int i = 0; i < VECS; ++i) {
        const int c = threadIdx.x + i * THREADS;
        if (c < vecs) {
            const uint4 gv = gain[c];
            const __nv_bfloat162* h = reinterpret_cast<const __nv_bfloat162*>(&v[i]);
            const __nv_bfloat162* k = reinterpret_cast<const __nv_bfloat162*>(&gv);
            uint4 o;
            __nv_bfloat162* q = reinterpret_cast<__nv_bfloat162*>(&o);
            #pragma unroll
            for (int j = 0; j < 4; ++j) {
                const float2 f = __bfloat1622float2(h[j]), w = __bfloat1622float2(k[j]);
                q[j] = __floats2bfloat162_rn(f.x * r * w.x, f.y * r * w.y);
            }
            row[c] = o;
        }
    }
}

struct Plan {
    cublasLtHandle_t handle = nullptr;
    cublasLtMatmulDesc_t op = nullptr;
    cublasLtMatrixLayout_t a = nullptr, b = nullptr, d = nullptr;
    cublasLtMatmulAlgo_t algo;
    int M = 0, N = 0, K = 0;
};

constexpr size_t WORKSPACE = 32u << 20;

static void make_plan(Plan& p, int M, int N, int K) {
    if (!p.handle) CHECK_LT(cublasLtCreate(&p.handle));
    if (p.op) { cublasLtMatmulDescDestroy(p.op); cublasLtMatrixLayoutDestroy(p.a); cublasLtMatrixLayoutDestroy(p.b); cublasLtMatrixLayoutDestroy(p.d); }
    CHECK_LT(cublasLtMatmulDescCreate(&p.op, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    cublasOperation_t t = CUBLAS_OP_T, n = CUBLAS_OP_N;
    CHECK_LT(cublasLtMatmulDescSetAttribute(p.op, CUBLASLT_MATMUL_DESC_TRANSA, &t, sizeof(t)));
    CHECK_LT(cublasLtMatmulDescSetAttribute(p.op, CUBLASLT_MATMUL_DESC_TRANSB, &n, sizeof(n)));
    cublasLtEpilogue_t epi = CUBLASLT_EPILOGUE_BIAS;
    CHECK_LT(cublasLtMatmulDescSetAttribute(p.op, CUBLASLT_MATMUL_DESC_EPILOGUE, &epi, sizeof(epi)));
    cudaDataType_t bt = CUDA_R_16BF;
    CHECK_LT(cublasLtMatmulDescSetAttribute(p.op, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &bt, sizeof(bt)));
    // Row-major Y[M,N] is column-major Y^T[N,M] = W[N,K] * X[M,K]^T
    CHECK_LT(cublasLtMatrixLayoutCreate(&p.a, CUDA_R_16BF, K, N, K));
    CHECK_LT(cublasLtMatrixLayoutCreate(&p.b, CUDA_R_16BF, K, M, K));
    CHECK_LT(cublasLtMatrixLayoutCreate(&p.d, CUDA_R_16BF, N, M, N));
    cublasLtMatmulPreference_t pref;
    CHECK_LT(cublasLtMatmulPreferenceCreate(&pref));
    size_t ws = WORKSPACE;
    CHECK_LT(cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &ws, sizeof(ws)));
    cublasLtMatmulHeuristicResult_t result;
    int found = 0;
    CHECK_LT(cublasLtMatmulAlgoGetHeuristic(p.handle, p.op, p.a, p.b, p.d, p.d, pref, 1, &result, &found));
    TORCH_CHECK(found > 0, "no cublasLt algorithm");
    cublasLtMatmulPreferenceDestroy(pref);
    p.algo = result.algo;
    p.M = M; p.N = N; p.K = K;
}

torch::Tensor proj_rmsnorm(torch::Tensor x, torch::Tensor w, torch::Tensor b, torch::Tensor g, double eps) {
    static Plan plan;
    const int M = x.size(0), K = x.size(1), N = w.size(0);
    TORCH_CHECK(N % 8 == 0 && N <= 256 * 8 * 4);
    if (plan.M != M || plan.N != N || plan.K != K) make_plan(plan, M, N, K);
    auto y = torch::empty({M, N}, x.options());
    auto ws = torch::empty({(int64_t)WORKSPACE}, x.options().dtype(torch::kUInt8));
    auto stream = at::cuda::getCurrentCUDAStream();
    const void* bias = b.data_ptr();
    CHECK_LT(cublasLtMatmulDescSetAttribute(plan.op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof(bias)));
    const float one = 1.f, zero = 0.f;
    CHECK_LT(cublasLtMatmul(plan.handle, plan.op, &one, w.data_ptr(), plan.a, x.data_ptr(), plan.b, &zero, y.data_ptr(), plan.d, y.data_ptr(), plan.d,
                            &plan.algo, ws.data_ptr(), WORKSPACE, stream));
    rmsnorm_inplace<256, 4><<<M, 256, 0, stream>>>(reinterpret_cast<__nv_bfloat16*>(y.data_ptr()), reinterpret_cast<const __nv_bfloat16*>(g.data_ptr()), N, (float)eps);
    return y;
}
"""

ext = load_inline(
    name="lt_proj_rmsnorm",
    cpp_sources=[cpp_src],
    cuda_sources=[cuda_src],
    functions=["proj_rmsnorm"],
    extra_ldflags=["-lcublasLt", "-lcublas"],
    extra_cuda_cflags=["-O3", "--use_fast_math"],
    with_cuda=True,
)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, eps=1e-5):
        super().__init__()
        self.proj = nn.Linear(in_features, out_features, dtype=torch.bfloat16)
        self.norm = nn.RMSNorm(out_features, eps=eps, dtype=torch.bfloat16)

    def forward(self, x):
        return ext.proj_rmsnorm(x.contiguous(), self.proj.weight, self.proj.bias, self.norm.weight, self.norm.eps)
