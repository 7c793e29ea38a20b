# task: tasks/softmax.py
# device: cpu
# says: load_inline with C++ and PyTorch's headers
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CPP = r"""
#include <torch/extension.h>
#include <cmath>

torch::Tensor scaled_softmax(torch::Tensor x, torch::Tensor scale) {
  TORCH_CHECK(x.dim() == 2 && x.scalar_type() == torch::kFloat32, "a matrix of float32");
  x = x.contiguous();
  auto y = torch::empty_like(x);
  const float* in = x.data_ptr<float>();
  const float* gain = scale.data_ptr<float>();
  float* out = y.data_ptr<float>();
  const int64_t columns = x.size(1);
  at::parallel_for(0, x.size(0), 4, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float* row = in + r * columns;
      float top = row[0], sum = 0.f;
      for (int64_t i = 1; i < columns; ++i) top = std::max(top, row[i]);
      for (int64_t i = 0; i < columns; ++i) sum += out[r * columns + i] = std::exp(row[i] - top);
      for (int64_t i = 0; i < columns; ++i) out[r * columns + i] *= gain[i] / sum;
    }
  });
  return y;
}
"""
module = load_inline("honest_scaled_softmax", cpp_sources=CPP, functions=["scaled_softmax"], extra_cflags=["-O3", "-march=native"])


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return module.scaled_softmax(x, self.scale.detach())
