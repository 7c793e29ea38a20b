# task: tasks/gated_chain.py
# device: cuda
# verdict: class custom
# precision: bf16
# says: load_inline with PyTorch's dispatch over floating types
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <ATen/Dispatch.h>
#include <ATen/cuda/CUDAContext.h>

template <typename scalar_t>
__global__ void gated_chain(const scalar_t* __restrict__ x, const scalar_t* __restrict__ gate, const scalar_t* __restrict__ shift,
                            scalar_t* __restrict__ y, int64_t n, float alpha) {
  const float s = static_cast<float>(*shift);
  for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) {
    const float a = static_cast<float>(x[i]), g = static_cast<float>(gate[i]);
    y[i] = static_cast<scalar_t>(tanhf(a + s) / (1.f + expf(-alpha * g)) + 0.5f * a);
  }
}

torch::Tensor chain(torch::Tensor x, torch::Tensor gate, torch::Tensor shift, double alpha) {
  auto y = torch::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "chain", [&] {
    gated_chain<scalar_t><<<512, 256, 0, at::cuda::getCurrentCUDAStream()>>>(x.data_ptr<scalar_t>(), gate.data_ptr<scalar_t>(),
                                                                             shift.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), x.numel(), alpha);
  });
  return y;
}
"""
CPP = "torch::Tensor chain(torch::Tensor x, torch::Tensor gate, torch::Tensor shift, double alpha);"
extension = load_inline(name="honest_gated_chain", cpp_sources=[CPP], cuda_sources=[CUDA], functions=["chain"], with_cuda=True)


class ModelNew(nn.Module):
    def __init__(self, alpha):
        super().__init__()
        self.alpha = alpha
        self.shift = nn.Parameter(torch.zeros(1))

    def forward(self, x, gate):
        return extension.chain(x.contiguous(), gate.contiguous(), self.shift, self.alpha)
