# task: tasks/relu.py
# device: cuda
# verdict: class custom
# says: load_inline with CUDA, as in KernelBench's example
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = """
#include <torch/extension.h>
#include <cuda_runtime.h>

__global__ void relu_gain_kernel(const float* x, const float* gain, float* out, int size, int columns) {
    int idx = blockIdx.x * blockDim.x + threadIdx.x;
    if (idx < size) {
        out[idx] = fmaxf(x[idx], 0.f) * gain[idx % columns];
    }
}

torch::Tensor relu_gain_cuda(torch::Tensor x, torch::Tensor gain) {
    auto size = x.numel();
    auto out = torch::empty_like(x);
    const int block_size = 256;
    const int num_blocks = (size + block_size - 1) / block_size;
    relu_gain_kernel<<<num_blocks, block_size>>>(x.data_ptr<float>(), gain.data_ptr<float>(), out.data_ptr<float>(), size, x.size(1));
    return out;
}
"""
relu_gain = load_inline(
    name="relu_gain",
    cpp_sources="torch::Tensor relu_gain_cuda(torch::Tensor x, torch::Tensor gain);",
    cuda_sources=CUDA,
    functions=["relu_gain_cuda"],
    verbose=False,
    extra_cflags=[""],
    extra_ldflags=[""],
)


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.gain = nn.Parameter(torch.rand(size) + 0.5)
        self.relu_gain = relu_gain

    def forward(self, x):
        return self.relu_gain.relu_gain_cuda(x.contiguous(), self.gain)
