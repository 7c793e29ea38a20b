# fault: register spills
# class: memory | latency
# diagnosis: register-spills
# method: relieve-registers
# says: loops that are not unrolled index a thread's 64 values at run time, so the values live in local memory

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)


def get_inputs():
    return [torch.randn(64, 64, 4096)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// Softmax over 64 channels of x[batch, 64, 4096]: a thread a place, its values in an array.
// [good]
#define LOOP _Pragma("unroll")
// [faulty]
#define LOOP _Pragma("unroll 1")
// [end]
__global__ void __launch_bounds__(128) softmax(const float* __restrict__ x, float* __restrict__ y) {
    const int place = blockIdx.x * 128 + threadIdx.x;
    const size_t base = (size_t)(place / 4096) * 64 * 4096 + place % 4096;
    float v[64], top = -INFINITY, sum = 0.0f;
    LOOP for (int c = 0; c < 64; c++) v[c] = x[base + c * 4096];
    LOOP for (int c = 0; c < 64; c++) top = fmaxf(top, v[c]);
    LOOP for (int c = 0; c < 64; c++) {
        v[c] = expf(v[c] - top);
        sum += v[c];
    }
    const float scale = 1.0f / sum;
    LOOP for (int c = 0; c < 64; c++) y[base + c * 4096] = v[c] * scale;
}

extern "C" int run(const float* x, float* y, int batch, cudaStream_t stream) {
    softmax<<<batch * 4096 / 128, 128, 0, stream>>>(x, y);
    return (int)cudaGetLastError();
}
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        launch("run", x, y, x.shape[0])
        return y
