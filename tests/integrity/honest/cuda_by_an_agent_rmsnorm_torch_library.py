# task: tasks/agents_rmsnorm_torch_library.py
# device: cuda
# precision: bf16
# says: as an agent writes it: TORCH_LIBRARY in the CUDA unit, cpp_sources="", is_python_module=False, register_fake by name, TORCH_CUDA_ARCH_LIST by setdefault; two outputs
import os

os.environ.setdefault("TORCH_CUDA_ARCH_LIST", "9.0a")
os.environ.setdefault("MAX_JOBS", "8")

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SRC = r"""
#include <torch/all.h>
#include <torch/library.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_bf16.h>

namespace {

struct alignas(16) bf16x8 { __nv_bfloat162 v[4]; };

template <int THREADS, int VECS>
__global__ void __launch_bounds__(THREADS) fused_add_rms_norm_kernel(
    const bf16x8* __restrict__ hidden, const bf16x8* __restrict__ residual, const bf16x8* __restrict__ weight,
    bf16x8* __restrict__ out, bf16x8* __restrict__ new_residual, int vec_per_row, float eps) {
  __shared__ float warp_sums[THREADS / 32];
  const size_t base = (size_t)blockIdx.x * vec_per_row;
  bf16x8 keep[VECS];
  float sum = 0.f;
#pragma unroll
  for (int i = 0; i < VECS; ++i) {
    const int c = threadIdx.x + i * THREADS;
    if (c >= vec_per_row) continue;
    const bf16x8 h = hidden[base + c], r = residual[base + c];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      keep[i].v[j] = __hadd2(h.v[j], r.v[j]);   // rounds to bf16 exactly as eager does
      const float2 f = __bfloat1622float2(keep[i].v[j]);
      sum += f.x * f.x + f.y * f.y;
    }
    new_residual[base + c] = keep[i];
  }
#pragma unroll
  for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, o);
  if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = sum;
  __syncthreads();
  float total = 0.f;
#pragma unroll
  for (int w = 0; w < THREADS / 32; ++w) total += warp_sums[w];
  const float rstd = rsqrtf(total / (vec_per_row * 8) + eps);
#pragma unroll
  for (int i = 0; i < VECS; ++i) {
    const int c = threadIdx.x + i * THREADS;
    if (c >= vec_per_row) continue;
    const bf16x8 w = weight[c];
    bf16x8 o;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float2 f = __bfloat1622float2(keep[i].v[j]);
      o.v[j] = __hmul2(w.v[j], __floats2bfloat162_rn(f.x * rstd, f.y * rstd));
    }
    out[base + c] = o;
  }
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> fused_add_rms_norm(const at::Tensor& hidden, const at::Tensor& residual, const at::Tensor& weight, double eps) {
  const at::cuda::OptionalCUDAGuard guard(device_of(hidden));
  TORCH_CHECK(hidden.scalar_type() == at::kBFloat16, "expected bf16");
  TORCH_CHECK(hidden.is_contiguous() && residual.is_contiguous() && weight.is_contiguous(), "expected contiguous tensors");
  const int64_t n = hidden.size(-1);
  TORCH_CHECK(n % 8 == 0 && n <= 8 * 256 * 4, "unsupported hidden size");
  auto out = at::empty_like(hidden);
  auto res = at::empty_like(hidden);
  fused_add_rms_norm_kernel<256, 4><<<hidden.numel() / n, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
      reinterpret_cast<const bf16x8*>(hidden.data_ptr()), reinterpret_cast<const bf16x8*>(residual.data_ptr()),
      reinterpret_cast<const bf16x8*>(weight.data_ptr()), reinterpret_cast<bf16x8*>(out.data_ptr()),
      reinterpret_cast<bf16x8*>(res.data_ptr()), static_cast<int>(n / 8), static_cast<float>(eps));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return {out, res};
}

TORCH_LIBRARY(llm_norms, m) {
  m.def("fused_add_rms_norm(Tensor hidden, Tensor residual, Tensor weight, float eps) -> (Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(llm_norms, CUDA, m) {
  m.impl("fused_add_rms_norm", &fused_add_rms_norm);
}
"""

load_inline(
    name="llm_norms",
    cpp_sources="",
    cuda_sources=SRC,
    is_python_module=False,
    with_cuda=True,
    extra_cuda_cflags=["-O3", "-U__CUDA_NO_BFLOAT16_OPERATORS__", "-U__CUDA_NO_BFLOAT162_OPERATORS__", "-U__CUDA_NO_BFLOAT16_CONVERSIONS__"],
)


@torch.library.register_fake("llm_norms::fused_add_rms_norm")
def _(hidden, residual, weight, eps):
    return torch.empty_like(hidden), torch.empty_like(residual)


class ModelNew(nn.Module):
    def __init__(self, hidden_size, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size, dtype=torch.bfloat16))
        self.variance_epsilon = eps

    def forward(self, hidden_states, residual):
        out, new_residual = torch.ops.llm_norms.fused_add_rms_norm(hidden_states, residual, self.weight, self.variance_epsilon)
        return out, new_residual
