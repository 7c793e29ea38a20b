# task: tasks/any_batch.py
# device: cuda
# verdict: class custom
# says: a kernel compiled at run time by NVRTC, through PyTorch's own function for it
import torch
import torch.nn as nn

KERNEL = r"""
extern "C" __global__ void leaky_gain(const float* x, const float* gain, float* y, int columns, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    float v = x[i];
    y[i] = (v > 0.f ? v : 0.2f * v) * gain[i % columns];
  }
}
"""


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.gain = nn.Parameter(torch.rand(features) + 0.5)
        self.kernel = None

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        if n == 0:
            return y
        if self.kernel is None:
            self.kernel = torch.cuda._compile_kernel(KERNEL, "leaky_gain")
        self.kernel(((n + 255) // 256, 1, 1), (256, 1, 1), (x, self.gain, y, x.shape[1], n))
        return y
