# fault: split fusion
# class: memory
# diagnosis: split-fusion
# method: fuse-row-reduction
# says: scaling and bias are a separate kernel before the softmax, and the gain after it is another

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(2048))

    def forward(self, x):
        return torch.softmax(x * 0.125 + self.bias, dim=1) * 2048.0


def get_inputs():
    return [torch.randn(16384, 2048)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// 2048 softmax(x / 8 + bias) of rows of 2048: a block of 256 threads a row, 8 values a thread
__device__ void softmax(float* v, float gain) {
    float top = -INFINITY, sum = 0.0f;
#pragma unroll
    for (int k = 0; k < 8; k++) top = fmaxf(top, v[k]);
    top = block_max(top);
#pragma unroll
    for (int k = 0; k < 8; k++) {
        v[k] = expf(v[k] - top);
        sum += v[k];
    }
    const float scale = gain / block_sum(sum);
#pragma unroll
    for (int k = 0; k < 8; k++) v[k] *= scale;
}

#define EACH _Pragma("unroll") for (int k = 0; k < 8; k++)
#define AT base + k * 256
// [good]
__global__ void fused(const float* __restrict__ x, const float* __restrict__ bias, float* __restrict__ y) {
    const size_t base = (size_t)blockIdx.x * 2048 + threadIdx.x;
    float v[8];
    EACH v[k] = x[AT] * 0.125f + bias[threadIdx.x + k * 256];
    softmax(v, 2048.0f);
    EACH y[AT] = v[k];
}

extern "C" int run(const float* x, const float* bias, float* s, float* y, int rows, cudaStream_t stream) {
    fused<<<rows, 256, 0, stream>>>(x, bias, y);
    return (int)cudaGetLastError();
}
// [faulty]
__global__ void shift(const float* __restrict__ x, const float* __restrict__ bias, float* __restrict__ s) {
    const size_t base = (size_t)blockIdx.x * 2048 + threadIdx.x;
    EACH s[AT] = x[AT] * 0.125f + bias[threadIdx.x + k * 256];
}

__global__ void rows_softmax(const float* __restrict__ s, float* __restrict__ y) {
    const size_t base = (size_t)blockIdx.x * 2048 + threadIdx.x;
    float v[8];
    EACH v[k] = s[AT];
    softmax(v, 1.0f);
    EACH y[AT] = v[k];
}

__global__ void gain(float* __restrict__ y) {
    const size_t base = (size_t)blockIdx.x * 2048 + threadIdx.x;
    EACH y[AT] *= 2048.0f;
}

extern "C" int run(const float* x, const float* bias, float* s, float* y, int rows, cudaStream_t stream) {
    shift<<<rows, 256, 0, stream>>>(x, bias, s);
    rows_softmax<<<rows, 256, 0, stream>>>(s, y);
    gain<<<rows, 256, 0, stream>>>(y);
    return (int)cudaGetLastError();
}
// [end]
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(2048))

    def forward(self, x):
        y, s = torch.empty_like(x), torch.empty_like(x)
        launch("run", x, self.bias, s, y, x.shape[0])
        return y
