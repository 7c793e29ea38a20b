# task: tasks/mse.py
# device: cuda
# verdict: class custom
# says: load_inline with two kernels and a workspace from PyTorch's allocator
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>

__device__ double block_total(double v) {
  __shared__ double part[8];
  for (int o = 16; o; o >>= 1) v += __shfl_down_sync(0xffffffffu, v, o);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
  __syncthreads();
  if (threadIdx.x == 0)
    for (int i = 1; i < 8; i++) v += part[i];
  return v;  // right in thread 0
}

__global__ void squares(const float* __restrict__ a, const float* __restrict__ b, double* __restrict__ work, int64_t n) {
  double sum = 0;
  for (int64_t i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) {
    const double d = (double)a[i] - (double)b[i];
    sum += d * d;
  }
  sum = block_total(sum);
  if (threadIdx.x == 0) work[blockIdx.x] = sum;
}

__global__ void finish(const double* __restrict__ work, float* __restrict__ out, int64_t n) {
  const double sum = block_total(work[threadIdx.x]);
  if (threadIdx.x == 0) *out = (float)(sum / n);
}

torch::Tensor mean_square(torch::Tensor a, torch::Tensor b) {
  auto work = torch::empty({256}, a.options().dtype(torch::kFloat64));
  auto out = torch::empty({}, a.options());
  auto stream = at::cuda::getCurrentCUDAStream();
  squares<<<256, 256, 0, stream>>>(a.data_ptr<float>(), b.data_ptr<float>(), work.data_ptr<double>(), a.numel());
  finish<<<1, 256, 0, stream>>>(work.data_ptr<double>(), out.data_ptr<float>(), a.numel());
  return out;
}
"""
extension = load_inline(
    "honest_mean_square", "torch::Tensor mean_square(torch::Tensor a, torch::Tensor b);", cuda_sources=CUDA, functions="mean_square"
)


class ModelNew(nn.Module):
    def forward(self, prediction, target):
        return extension.mean_square(prediction.contiguous(), target.contiguous())
