# task: tasks/agents_instance_norm_clone.py
# device: cuda
# says: as an agent writes it: a static output buffer by shape and device and the clone of it returned, float4 loads kept in registers, __all__ and a smoke test, DLL name with a version
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

__all__ = ["ModelNew"]
__version__ = "0.3.1"

_kernel = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>

namespace {
constexpr int kThreads = 256;

__inline__ __device__ float sum256(float v, float* smem) {
    for (int mask = 16; mask; mask >>= 1) v += __shfl_xor_sync(0xffffffff, v, mask);
    if (!(threadIdx.x & 31)) smem[threadIdx.x >> 5] = v;
    __syncthreads();
    float r = 0.f;
    #pragma unroll
    for (int i = 0; i < kThreads / 32; ++i) r += smem[i];
    __syncthreads();
    return r;
}

// One block a plane of 4 * kThreads * R numbers; two passes over registers.
template <int R>
__global__ void __launch_bounds__(kThreads) instance_norm_lrelu(const float4* __restrict__ x, const float* __restrict__ gamma, const float* __restrict__ beta,
                                                               float4* __restrict__ y, int channels, float eps, float slope) {
    __shared__ float smem[kThreads / 32];
    const int c = blockIdx.x % channels;
    const float4* in = x + (size_t)blockIdx.x * kThreads * R;
    float4* out = y + (size_t)blockIdx.x * kThreads * R;
    float4 v[R];
    float s = 0.f;
    #pragma unroll
    for (int i = 0; i < R; ++i) {
        v[i] = in[threadIdx.x + i * kThreads];
        s += (v[i].x + v[i].y) + (v[i].z + v[i].w);
    }
    constexpr float inv = 1.f / (4 * kThreads * R);
    const float mean = sum256(s, smem) * inv;
    float q = 0.f;
    #pragma unroll
    for (int i = 0; i < R; ++i) {
        const float a = v[i].x - mean, b = v[i].y - mean, d = v[i].z - mean, e = v[i].w - mean;
        q += (a * a + b * b) + (d * d + e * e);
    }
    const float g = gamma[c] * rsqrtf(sum256(q, smem) * inv + eps), b = beta[c];
    auto f = [&](float t) { t = (t - mean) * g + b; return t > 0.f ? t : t * slope; };
    #pragma unroll
    for (int i = 0; i < R; ++i) out[threadIdx.x + i * kThreads] = make_float4(f(v[i].x), f(v[i].y), f(v[i].z), f(v[i].w));
}
}  // namespace

void instance_norm(torch::Tensor x, torch::Tensor gamma, torch::Tensor beta, torch::Tensor y, double eps, double slope) {
    const int planes = x.size(0) * x.size(1), numbers = x.size(2) * x.size(3);
    auto stream = at::cuda::getCurrentCUDAStream();
    auto in = reinterpret_cast<const float4*>(x.const_data_ptr<float>());
    auto out = reinterpret_cast<float4*>(y.mutable_data_ptr<float>());
    const float *g = gamma.const_data_ptr<float>(), *b = beta.const_data_ptr<float>();
    switch (numbers / (4 * kThreads)) {
        case 1: instance_norm_lrelu<1><<<planes, kThreads, 0, stream>>>(in, g, b, out, x.size(1), eps, slope); break;
        case 4: instance_norm_lrelu<4><<<planes, kThreads, 0, stream>>>(in, g, b, out, x.size(1), eps, slope); break;
        case 16: instance_norm_lrelu<16><<<planes, kThreads, 0, stream>>>(in, g, b, out, x.size(1), eps, slope); break;
        default: TORCH_CHECK(false, "plane of ", numbers, " numbers is not supported");
    }
}
"""

_mod = load_inline(
    name="instance_norm_lrelu_v" + __version__.replace(".", "_"),
    cpp_sources="void instance_norm(torch::Tensor x, torch::Tensor gamma, torch::Tensor beta, torch::Tensor y, double eps, double slope);",
    cuda_sources=_kernel,
    functions=["instance_norm"],
    extra_cuda_cflags=["-O3", "--use_fast_math"],
)


class ModelNew(nn.Module):
    def __init__(self, channels, slope):
        super().__init__()
        self.norm = nn.InstanceNorm2d(channels, affine=True)
        self.act = nn.LeakyReLU(slope)
        self._out = {}

    def forward(self, x):
        x = x.contiguous()
        key = (tuple(x.shape), x.device)
        if key not in self._out:
            self._out[key] = torch.empty_like(x)
        out = self._out[key]
        _mod.instance_norm(x, self.norm.weight, self.norm.bias, out, self.norm.eps, self.act.negative_slope)
        return out.clone()  # the buffer is reused by the next call


if __name__ == "__main__":
    torch.manual_seed(0)
    m = ModelNew(64, 0.2).cuda()
    x = torch.randn(16, 64, 64, 64, device="cuda")
    torch.testing.assert_close(m(x), m.act(m.norm(x)), rtol=1e-4, atol=1e-4)
    print("ok")
