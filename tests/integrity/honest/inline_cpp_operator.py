# task: tasks/any_batch.py
# device: cpu
# says: an operator registered with TORCH_LIBRARY in a library that is not a Python module
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CPP = r"""
#include <torch/library.h>
#include <ATen/ATen.h>

at::Tensor leaky_gain(const at::Tensor& x, const at::Tensor& gain, double slope) {
  auto in = x.contiguous();
  auto y = at::empty_like(in);
  const float* source = in.const_data_ptr<float>();
  const float* g = gain.const_data_ptr<float>();
  float* out = y.mutable_data_ptr<float>();
  const int64_t columns = gain.numel();
  for (int64_t i = 0; i < in.numel(); ++i) out[i] = (source[i] > 0 ? source[i] : float(slope) * source[i]) * g[i % columns];
  return y;
}

TORCH_LIBRARY(stitch_honest, m) {
  m.def("leaky_gain(Tensor x, Tensor gain, float slope) -> Tensor");
  m.impl("leaky_gain", c10::DispatchKey::CPU, TORCH_FN(leaky_gain));
}
"""
load_inline("honest_leaky_gain", cpp_sources=CPP, is_python_module=False, extra_cflags=["-O2"])


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.gain = nn.Parameter(torch.rand(features) + 0.5)

    def forward(self, x):
        return torch.ops.stitch_honest.leaky_gain(x, self.gain, 0.2)
