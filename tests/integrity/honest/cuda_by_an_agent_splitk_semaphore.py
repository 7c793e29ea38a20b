# task: tasks/agents_splitk_semaphore.py
# device: cuda
# says: as an agent writes it: split-K with turn-taking semaphores in one kernel, torch::kInt workspace kept in C++ statics by device, PYBIND11_MODULE in the CUDA source
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <map>

// C tile 64 x 64, K step 16, 256 threads, 4 x 4 a thread; the splits of a tile add to it one after the other (serial split-K).
constexpr int BM = 64, BN = 64, BK = 16;

__global__ void __launch_bounds__(256) splitk_gemm(const float* __restrict__ A, const float* __restrict__ W, const float* __restrict__ bias,
                                                  float* C, int* semaphores, int M, int N, int K, int k_per_split) {
    __shared__ float As[BK][BM + 4];
    __shared__ float Ws[BK][BN + 4];
    const int tid = threadIdx.x, tx = tid % 16, ty = tid / 16;
    const int m0 = blockIdx.y * BM, n0 = blockIdx.x * BN;
    const int begin = blockIdx.z * k_per_split, end = min(K, begin + k_per_split);
    float acc[4][4] = {};
    const int lr = tid / 4, lc = (tid % 4) * 4;
    for (int k0 = begin; k0 < end; k0 += BK) {
        const float4 z = make_float4(0.f, 0.f, 0.f, 0.f);
        const float4 a = m0 + lr < M ? *reinterpret_cast<const float4*>(A + (size_t)(m0 + lr) * K + k0 + lc) : z;
        const float4 w = n0 + lr < N ? *reinterpret_cast<const float4*>(W + (size_t)(n0 + lr) * K + k0 + lc) : z;
        As[lc][lr] = a.x; As[lc + 1][lr] = a.y; As[lc + 2][lr] = a.z; As[lc + 3][lr] = a.w;
        Ws[lc][lr] = w.x; Ws[lc + 1][lr] = w.y; Ws[lc + 2][lr] = w.z; Ws[lc + 3][lr] = w.w;
        __syncthreads();
        #pragma unroll
        for (int k = 0; k < BK; ++k) {
            float p[4], q[4];
            #pragma unroll
            for (int i = 0; i < 4; ++i) { p[i] = As[k][ty * 4 + i]; q[i] = Ws[k][tx * 4 + i]; }
            #pragma unroll
            for (int i = 0; i < 4; ++i)
                #pragma unroll
                for (int j = 0; j < 4; ++j) acc[i][j] = fmaf(p[i], q[j], acc[i][j]);
        }
        __syncthreads();
    }
    // Wait for the turn of this split.
    int* semaphore = semaphores + blockIdx.y * gridDim.x + blockIdx.x;
    if (tid == 0) {
        while (atomicAdd(semaphore, 0) != (int)blockIdx.z) __nanosleep(40);
        __threadfence();
    }
    __syncthreads();
    const bool first = blockIdx.z == 0, last = blockIdx.z == gridDim.z - 1;
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int m = m0 + ty * 4 + i;
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
            const int n = n0 + tx * 4 + j;
            if (m < M && n < N) {
                float v = acc[i][j] + (first ? bias[n] : __ldcg(C + (size_t)m * N + n));
                if (last) v = v < 0.f ? 0.f : v;      // keeps NaN
                __stcg(C + (size_t)m * N + n, v);
            }
        }
    }
    __threadfence();
    __syncthreads();
    if (tid == 0) atomicExch(semaphore, last ? 0 : (int)blockIdx.z + 1);
}

torch::Tensor linear_relu(torch::Tensor x, torch::Tensor w, torch::Tensor b) {
    TORCH_CHECK(x.is_cuda() && w.is_cuda() && x.scalar_type() == torch::kFloat, "fp32 CUDA tensors wanted");
    const at::cuda::OptionalCUDAGuard guard(device_of(x));
    const int M = x.size(0), K = x.size(1), N = w.size(0);
    TORCH_CHECK(K % 16 == 0, "K must be a multiple of 16");
    const dim3 tiles((N + BN - 1) / BN, (M + BM - 1) / BM);
    const int sms = at::cuda::getCurrentDeviceProperties()->multiProcessorCount;
    int splits = std::max(1, std::min(64, sms * 4 / (int)(tiles.x * tiles.y)));
    const int per = ((K + splits - 1) / splits + 15) / 16 * 16;
    splits = (K + per - 1) / per;
    static std::map<int, torch::Tensor> semaphores;
    auto& sem = semaphores[x.get_device()];
    if (!sem.defined() || sem.numel() < (int64_t)(tiles.x * tiles.y)) sem = torch::zeros({(int64_t)(tiles.x * tiles.y)}, x.options().dtype(torch::kInt));
    auto y = torch::empty({M, N}, x.options());
    splitk_gemm<<<dim3(tiles.x, tiles.y, splits), 256, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), w.data_ptr<float>(), b.data_ptr<float>(), y.data_ptr<float>(), sem.data_ptr<int>(), M, N, K, per);
    return y;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.def("linear_relu", &linear_relu, "fused linear + ReLU (split-K)", py::arg("x"), py::arg("w"), py::arg("b"));
}
"""

splitk = load_inline(name="splitk_turns", cpp_sources="", cuda_sources=SOURCE, extra_cuda_cflags=["-O3", "-Xptxas", "-v"], with_cuda=True)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.fc = nn.Linear(in_features, out_features)

    def forward(self, x):
        return splitk.linear_relu(x=x.contiguous(), w=self.fc.weight, b=self.fc.bias)
