# task: tasks/agents_geglu_dispatch.py
# device: cuda
# says: as an agent writes it: AT_DISPATCH_FLOATING_TYPES_AND2, vectors of 16 bytes by a template, ATen operators as fallback, autograd.Function for training only
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.cpp_extension import load_inline

cuda_source = '''
#include <torch/extension.h>
#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/AccumulateType.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

template <typename scalar_t, int N>
struct alignas(sizeof(scalar_t) * N) Pack { scalar_t v[N]; };

template <typename acc_t>
__device__ __forceinline__ acc_t gelu(acc_t x) { return x * acc_t(0.5) * (acc_t(1) + erf(x * acc_t(0.70710678118654752440))); }

template <typename scalar_t, int N>
__global__ void geglu_forward_kernel(const scalar_t* __restrict__ x, scalar_t* __restrict__ y, int64_t packs, int64_t half_packs) {
    using acc_t = at::acc_type<scalar_t, true>;
    using P = Pack<scalar_t, N>;
    const P* in = reinterpret_cast<const P*>(x);
    P* out = reinterpret_cast<P*>(y);
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < packs; i += (int64_t)gridDim.x * blockDim.x) {
        const int64_t row = i / half_packs, col = i - row * half_packs;
        const P a = in[row * 2 * half_packs + col], b = in[row * 2 * half_packs + half_packs + col];
        P r;
        #pragma unroll
        for (int k = 0; k < N; ++k) {
            // round the activation to the storage type, as eager does
            const scalar_t g = static_cast<scalar_t>(gelu<acc_t>(static_cast<acc_t>(a.v[k])));
            r.v[k] = static_cast<scalar_t>(static_cast<acc_t>(g) * static_cast<acc_t>(b.v[k]));
        }
        out[i] = r;
    }
}

torch::Tensor geglu_forward(const torch::Tensor& x_) {
    TORCH_CHECK(x_.is_cuda(), "geglu_forward: CUDA tensor expected, got ", x_.device());
    const int64_t features = x_.size(-1);
    TORCH_CHECK(features % 2 == 0, "geglu_forward: odd number of features: ", features);
    const int per_pack = 16 / x_.element_size();
    if ((features / 2) % per_pack != 0) {      // odd widths are rare: ATen handles them
        auto halves = x_.chunk(2, -1);
        return at::gelu(halves[0]) * halves[1];
    }
    auto x = x_.contiguous();
    auto sizes = x.sizes().vec();
    sizes.back() = features / 2;
    auto y = at::empty(sizes, x.options());
    const int64_t packs = y.numel() / per_pack, half_packs = features / 2 / per_pack;
    if (packs == 0) return y;
    const int blocks = (int)std::min<int64_t>((packs + 255) / 256, at::cuda::getCurrentDeviceProperties()->multiProcessorCount * 8);
    auto stream = at::cuda::getCurrentCUDAStream();
    AT_DISPATCH_FLOATING_TYPES_AND2(at::ScalarType::Half, at::ScalarType::BFloat16, x.scalar_type(), "geglu_forward", [&] {
        geglu_forward_kernel<scalar_t, 16 / sizeof(scalar_t)><<<blocks, 256, 0, stream>>>(x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), packs, half_packs);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    });
    return y;
}
'''

cpp_source = "torch::Tensor geglu_forward(const torch::Tensor& x_);"

geglu_ext = load_inline(
    name='geglu_dispatch_ext',
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions=['geglu_forward'],
    verbose=True,
    extra_cuda_cflags=['-O3', '--use_fast_math', '-lineinfo'],
)


class GegluFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return geglu_ext.geglu_forward(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            a, b = leaf.chunk(2, dim=-1)
            (got,) = torch.autograd.grad(F.gelu(a) * b, leaf, grad)
        return got


class ModelNew(nn.Module):
    def __init__(self):
        super(ModelNew, self).__init__()
        self.geglu = geglu_ext

    def forward(self, x):
        if torch.is_grad_enabled() and x.requires_grad:
            return GegluFunction.apply(x)
        return self.geglu.geglu_forward(x)
