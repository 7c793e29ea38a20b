# task: tasks/agents_groupnorm_silu_init_build.py
# device: cuda
# says: as an agent writes it: builds in __init__, changes CUDA_HOME, TORCH_CUDA_ARCH_LIST, MAX_JOBS, removes COMMON_NVCC_FLAGS, AT_DISPATCH, --threads 4
import os

import torch
import torch.nn as nn
import torch.utils.cpp_extension as cpp_extension

if "CUDA_HOME" not in os.environ and os.path.isdir("/usr/local/cuda"):
    os.environ["CUDA_HOME"] = "/usr/local/cuda"
    cpp_extension.CUDA_HOME = "/usr/local/cuda"
os.environ["TORCH_CUDA_ARCH_LIST"] = "9.0"
os.environ["MAX_JOBS"] = str(min(8, os.cpu_count() or 1))

# PyTorch disables the half operators by default; these kernels want them.
for flag in ("-D__CUDA_NO_HALF_OPERATORS__", "-D__CUDA_NO_HALF_CONVERSIONS__", "-D__CUDA_NO_HALF2_OPERATORS__"):
    try:
        cpp_extension.COMMON_NVCC_FLAGS.remove(flag)
    except ValueError:
        pass

KERNELS = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/Dispatch.h>

template <typename scalar_t>
__global__ void __launch_bounds__(1024) groupnorm_silu_kernel(const scalar_t* __restrict__ x, const scalar_t* __restrict__ gamma, const scalar_t* __restrict__ beta,
                                                              scalar_t* __restrict__ y, int channels, int groups, int hw, float eps) {
    using acc_t = float;
    __shared__ acc_t red[32];
    __shared__ acc_t stat[2];
    const int group = blockIdx.x % groups;
    const int cpg = channels / groups;
    const int n = cpg * hw;
    const size_t base = (size_t)blockIdx.x * n;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;

    acc_t s = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) s += static_cast<acc_t>(x[base + i]);
    for (int o = 16; o; o >>= 1) s += __shfl_down_sync(0xffffffff, s, o);
    if (lane == 0) red[warp] = s;
    __syncthreads();
    if (warp == 0) {
        s = lane < warps ? red[lane] : acc_t(0);
        for (int o = 16; o; o >>= 1) s += __shfl_down_sync(0xffffffff, s, o);
        if (lane == 0) stat[0] = s / n;
    }
    __syncthreads();
    const acc_t mean = stat[0];
    acc_t q = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) { const acc_t d = static_cast<acc_t>(x[base + i]) - mean; q += d * d; }
    for (int o = 16; o; o >>= 1) q += __shfl_down_sync(0xffffffff, q, o);
    if (lane == 0) red[warp] = q;
    __syncthreads();
    if (warp == 0) {
        q = lane < warps ? red[lane] : acc_t(0);
        for (int o = 16; o; o >>= 1) q += __shfl_down_sync(0xffffffff, q, o);
        if (lane == 0) stat[1] = rsqrtf(q / n + eps);
    }
    __syncthreads();
    const acc_t rstd = stat[1];
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        const int c = group * cpg + i / hw;
        const acc_t v = (static_cast<acc_t>(x[base + i]) - mean) * rstd * static_cast<acc_t>(gamma[c]) + static_cast<acc_t>(beta[c]);
        y[base + i] = static_cast<scalar_t>(v / (acc_t(1) + expf(-v)));
    }
}

at::Tensor groupnorm_silu(at::Tensor x, at::Tensor gamma, at::Tensor beta, int64_t groups, double eps) {
    TORCH_CHECK(x.dim() == 4 && x.is_contiguous(), "expected a contiguous NCHW tensor");
    auto y = at::empty_like(x);
    const int n = x.size(0), c = x.size(1), hw = x.size(2) * x.size(3);
    AT_DISPATCH_FLOATING_TYPES_AND2(at::ScalarType::Half, at::ScalarType::BFloat16, x.scalar_type(), "groupnorm_silu", [&] {
        groupnorm_silu_kernel<scalar_t><<<n * groups, 1024, 0, at::cuda::getCurrentCUDAStream()>>>(
            x.data_ptr<scalar_t>(), gamma.data_ptr<scalar_t>(), beta.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), c, groups, hw, eps);
    });
    return y;
}
"""


class ModelNew(nn.Module):
    def __init__(self, groups, channels):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)
        self.ext = cpp_extension.load_inline(
            name="groupnorm_silu",
            cpp_sources="at::Tensor groupnorm_silu(at::Tensor x, at::Tensor gamma, at::Tensor beta, int64_t groups, double eps);",
            cuda_sources=KERNELS,
            functions=["groupnorm_silu"],
            extra_cuda_cflags=["-O3", "--threads", "4"],
            verbose=bool(int(os.environ.get("VERBOSE_BUILD", "0"))),
        )

    @torch.inference_mode()
    def forward(self, x):
        return self.ext.groupnorm_silu(x.contiguous(), self.norm.weight, self.norm.bias, self.norm.num_groups, self.norm.eps)
