# task: tasks/agents_pdl_row_quant.py
# device: cuda
# says: as an agent writes it: two kernels chained by programmatic dependent launch (cudaLaunchKernelEx, griddepcontrol), compute capability checked, static intermediate buffer
import logging

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

logger = logging.getLogger(__name__)

_cuda = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <tuple>

__device__ __forceinline__ float max_nan(float a, float b) { return (a != a || a > b) ? a : b; }   // the first NaN wins, as in amax
__device__ __forceinline__ float silu(float v) { return v / (1.f + expf(-v)); }

// Kernel 1: the largest magnitude of each row of silu(a) * b.
__global__ void __launch_bounds__(256) row_max_kernel(const float4* __restrict__ x, float* __restrict__ scale, int half4, float floor_) {
    __shared__ float part[8];
    const float4* a = x + (size_t)blockIdx.x * half4 * 2;
    const float4* b = a + half4;
    float m = 0.f;
    for (int i = threadIdx.x; i < half4; i += blockDim.x) {
        const float4 p = a[i], q = b[i];
        m = max_nan(fabsf(silu(p.x) * q.x), m);
        m = max_nan(fabsf(silu(p.y) * q.y), m);
        m = max_nan(fabsf(silu(p.z) * q.z), m);
        m = max_nan(fabsf(silu(p.w) * q.w), m);
    }
    #pragma unroll
    for (int o = 16; o > 0; o >>= 1) m = max_nan(__shfl_xor_sync(~0u, m, o), m);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = m;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 1; i < 8; ++i) m = max_nan(part[i], m);
        scale[blockIdx.x] = m < floor_ ? floor_ : m;
    }
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Kernel 2: computes the gate while kernel 1 drains, then waits for the scales.
__global__ void __launch_bounds__(256) apply_kernel(const float4* __restrict__ x, const float* scale, float4* __restrict__ y, int half4) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const int row = blockIdx.y;
    float4 h = make_float4(0.f, 0.f, 0.f, 0.f);
    if (i < half4) {
        const float4 p = x[(size_t)row * half4 * 2 + i], q = x[(size_t)row * half4 * 2 + half4 + i];
        h = make_float4(silu(p.x) * q.x, silu(p.y) * q.y, silu(p.z) * q.z, silu(p.w) * q.w);
    }
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
    if (i < half4) {
        const float s = __ldcg(scale + row);
        y[(size_t)row * half4 + i] = make_float4(h.x / s, h.y / s, h.z / s, h.w / s);
    }
}

std::tuple<torch::Tensor, torch::Tensor> gate_scale(torch::Tensor x, double floor_) {
    const int cols = x.size(-1), rows = x.numel() / cols, half4 = cols / 8;
    TORCH_CHECK(cols % 8 == 0, "the last dimension must be a multiple of 8");
    auto sizes = x.sizes().vec();
    sizes.back() = cols / 2;
    auto y = torch::empty(sizes, x.options());
    sizes.back() = 1;
    auto scale = torch::empty(sizes, x.options());
    auto stream = at::cuda::getCurrentCUDAStream().stream();
    const float4* xp = reinterpret_cast<const float4*>(x.data_ptr<float>());
    row_max_kernel<<<rows, 256, 0, stream>>>(xp, scale.data_ptr<float>(), half4, (float)floor_);

    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((half4 + 255) / 256, rows);
    config.blockDim = dim3(256);
    config.stream = stream;
    cudaLaunchAttribute attribute[1];
    attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute[0].val.programmaticStreamSerializationAllowed = 1;
    config.attrs = attribute;
    config.numAttrs = at::cuda::getCurrentDeviceProperties()->major >= 9 ? 1 : 0;
    C10_CUDA_CHECK(cudaLaunchKernelEx(&config, apply_kernel, xp, (const float*)scale.data_ptr<float>(), reinterpret_cast<float4*>(y.data_ptr<float>()), half4));
    return {y, scale};
}
"""

_pdl = load_inline(
    name="pdl_gate",
    cpp_sources="std::tuple<torch::Tensor, torch::Tensor> gate_scale(torch::Tensor x, double floor_);",
    cuda_sources=_cuda,
    functions={"gate_scale": "SwiGLU, then rows scaled by their largest magnitude"},
    extra_cuda_cflags=["-O3", "-Xcompiler", "-fPIC"],
)


class ModelNew(nn.Module):
    def __init__(self, floor=1e-6):
        super().__init__()
        self.floor = floor
        if torch.cuda.is_available():
            logger.debug("capability %s", torch.cuda.get_device_capability())

    def forward(self, x):
        y, scale = _pdl.gate_scale(x.contiguous(), self.floor)
        return y, scale
