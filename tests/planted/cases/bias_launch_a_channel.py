# fault: tiny launches
# class: launch
# diagnosis: tiny-launches
# method: batch-launches
# says: a separate kernel is launched for each of 256 channels

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(256))

    def forward(self, x):
        return torch.relu(x + self.bias[:, None, None])


def get_inputs():
    return [torch.randn(256, 128, 128)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// relu(x + bias of its channel), channels of 16384: 16 blocks of 256 threads a channel, 4 values a thread
__global__ void add(const float4* __restrict__ x, const float* __restrict__ bias, float4* __restrict__ y) {
    const int i = blockIdx.y * 4096 + blockIdx.x * 256 + threadIdx.x;
    const float b = bias[blockIdx.y];
    const float4 v = x[i];
    y[i] = make_float4(fmaxf(v.x + b, 0.0f), fmaxf(v.y + b, 0.0f), fmaxf(v.z + b, 0.0f), fmaxf(v.w + b, 0.0f));
}

extern "C" int run(const float4* x, const float* bias, float4* y, int channels, cudaStream_t stream) {
// [good]
    add<<<dim3(16, channels), 256, 0, stream>>>(x, bias, y);
// [faulty]
    for (int c = 0; c < channels; c++) add<<<dim3(16, 1), 256, 0, stream>>>(x + c * 4096, bias + c, y + c * 4096);
// [end]
    return (int)cudaGetLastError();
}
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(256))

    def forward(self, x):
        y = torch.empty_like(x)
        launch("run", x, self.bias, y, x.shape[0])
        return y
