# fault: register spills
# class: memory | latency | compute
# diagnosis: register-spills
# method: relieve-registers
# says: launch bounds of 2048 threads per multiprocessor leave 32 registers for 48 inputs and 32 sums of a filter

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.taps = nn.Parameter(torch.randn(16) * 0.25)

    def forward(self, x):
        return F.conv1d(x[:, None, :], self.taps[None, None, :])[:, 0]


def get_inputs():
    return [torch.randn(512, 32768 + 15)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// y[row, i] = sum of taps[k] x[row, i + k], 16 taps: a thread 32 neighbouring outputs, inputs and outputs staged through shared memory.
__global__ void
// [good]
__launch_bounds__(128)
// [faulty]
__launch_bounds__(128, 16)
// [end]
filter(const float* __restrict__ x, const float* __restrict__ taps, float* __restrict__ y, int width) {
    __shared__ float tile[33 * 129];  // a word of padding after every 32
    const int t = threadIdx.x, out = width - 15, first = blockIdx.x * 4096;
    const float* row = x + (size_t)blockIdx.y * width + first;
    for (int i = t; i < 4096 + 15; i += 128) tile[i + i / 32] = row[i];
    __syncthreads();
    float v[47], sum[32];
#pragma unroll
    for (int i = 0; i < 47; i++) v[i] = tile[t * 33 + i + i / 32];
#pragma unroll
    for (int i = 0; i < 32; i++) sum[i] = 0.0f;
#pragma unroll
    for (int k = 0; k < 16; k++) {
        const float tap = __ldg(taps + k);
#pragma unroll
        for (int i = 0; i < 32; i++) sum[i] += tap * v[i + k];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 32; i++) tile[t * 33 + i] = sum[i];
    __syncthreads();
    for (int i = t; i < 4096; i += 128) y[(size_t)blockIdx.y * out + first + i] = tile[i + i / 32];
}

extern "C" int run(const float* x, const float* taps, float* y, int rows, int width, cudaStream_t stream) {
    filter<<<dim3((width - 15) / 4096, rows), 128, 0, stream>>>(x, taps, y, width);
    return (int)cudaGetLastError();
}
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.taps = nn.Parameter(torch.randn(16) * 0.25)

    def forward(self, x):
        y = torch.empty(x.shape[0], x.shape[1] - 15, device=x.device)
        launch("run", x, self.taps, y, x.shape[0], x.shape[1])
        return y
