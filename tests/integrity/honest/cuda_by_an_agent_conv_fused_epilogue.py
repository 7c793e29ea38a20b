# task: tasks/agents_conv_fused_epilogue.py
# device: cuda
# says: as an agent writes it: cuDNN convolution, own fused epilogue
"""cuDNN convolution (without bias) + one kernel for bias, scale, tanh and the 2x2 max pool.

The pool runs before tanh: tanh is monotonic, so
max(tanh(a), tanh(b)) == tanh(max(a, b)). The scale is applied before the max, so its sign does not matter.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.cpp_extension import load_inline

epilogue_cpp = "at::Tensor scale_tanh_pool(const at::Tensor& x, const at::Tensor& bias, const at::Tensor& scale);"
epilogue_cu = r"""
#include <torch/types.h>
#include <ATen/cuda/CUDAContext.h>

__device__ __forceinline__ float nanmax(float a, float b) { return (a > b || a != a) ? a : b; }

__global__ void scale_tanh_pool_kernel(const float* __restrict__ x, const float* __restrict__ bias, const float* __restrict__ scale, float* __restrict__ y,
                                       int channels, int h, int w, int ho, int wo, long total) {
    const long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (i >= total) return;
    const int ox = i % wo;
    const long r = i / wo;
    const int oy = r % ho;
    const long plane = r / ho;
    const int c = plane % channels;
    const float b = bias[c], s = scale[c];
    const float* p = x + (plane * h + oy * 2) * w + ox * 2;
    const float v0 = (p[0] + b) * s, v1 = (p[1] + b) * s, v2 = (p[w] + b) * s, v3 = (p[w + 1] + b) * s;
    y[i] = tanhf(nanmax(nanmax(v0, v1), nanmax(v2, v3)));
}

at::Tensor scale_tanh_pool(const at::Tensor& x, const at::Tensor& bias, const at::Tensor& scale) {
    const int n = x.size(0), c = x.size(1), h = x.size(2), w = x.size(3), ho = h / 2, wo = w / 2;
    auto y = at::empty({n, c, ho, wo}, x.options());
    const long total = y.numel();
    scale_tanh_pool_kernel<<<(total + 255) / 256, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), bias.data_ptr<float>(), scale.data_ptr<float>(), y.data_ptr<float>(), c, h, w, ho, wo, total);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""

epilogue = load_inline(name="conv_epilogue", cpp_sources=epilogue_cpp, cuda_sources=epilogue_cu, functions=["scale_tanh_pool"], extra_cuda_cflags=["-O3"])


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)
        self.scale = nn.Parameter(torch.randn(out_channels, 1, 1))

    def forward(self, x):
        y = F.conv2d(x, self.conv.weight, None)
        return epilogue.scale_tanh_pool(y.contiguous(), self.conv.bias, self.scale)
