# task: tasks/layer_norm.py
# device: cuda
# verdict: class custom
# says: load_inline with the current stream, a device guard and checks of arguments
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/extension.h>

namespace {

template <typename T>
__device__ T block_sum(T v) {
  __shared__ T part[32];
  for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
  __syncthreads();
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
  __syncthreads();
  T sum = 0;
  for (int i = 0; i < blockDim.x / 32; i++) sum += part[i];
  return sum;
}

__global__ void norm_rows(const float* __restrict__ x, const float* __restrict__ w, const float* __restrict__ b, float* __restrict__ y, int n,
                          float eps) {
  const float* row = x + (size_t)blockIdx.x * n;
  float sum = 0.f;
  for (int i = threadIdx.x; i < n; i += blockDim.x) sum += row[i];
  const float mean = block_sum(sum) / n;
  float square = 0.f;
  for (int i = threadIdx.x; i < n; i += blockDim.x) square += (row[i] - mean) * (row[i] - mean);
  const float scale = rsqrtf(block_sum(square) / n + eps);
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[(size_t)blockIdx.x * n + i] = (row[i] - mean) * scale * w[i] + b[i];
}

}  // namespace

torch::Tensor layer_norm_forward(torch::Tensor x, torch::Tensor w, torch::Tensor b, double eps) {
  TORCH_CHECK(x.is_cuda() && x.dim() == 2, "a matrix on the GPU");
  TORCH_CHECK(x.size(1) == w.numel(), "one weight a column");
  const c10::cuda::CUDAGuard guard(x.device());
  auto in = x.contiguous();
  auto y = torch::empty_like(in);
  norm_rows<<<in.size(0), 256, 0, at::cuda::getCurrentCUDAStream()>>>(in.data_ptr<float>(), w.data_ptr<float>(), b.data_ptr<float>(),
                                                                      y.data_ptr<float>(), in.size(1), eps);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}
"""
CPP = "torch::Tensor layer_norm_forward(torch::Tensor x, torch::Tensor w, torch::Tensor b, double eps);"
extension = load_inline("honest_layer_norm", cpp_sources=CPP, cuda_sources=CUDA, functions=["layer_norm_forward"], extra_cuda_cflags=["-O3"])


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        return extension.layer_norm_forward(x, self.norm.weight, self.norm.bias, self.norm.eps)
