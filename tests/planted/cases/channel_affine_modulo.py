# fault: slow functions
# class: compute
# diagnosis: integer-overhead
# method: cheap-indices
# says: four indices are computed by 64-bit division for every element

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.randn(64))
        self.row = nn.Parameter(torch.randn(128))

    def forward(self, x):
        return x * self.gain[:, None, None] + self.row[:, None]


def get_inputs():
    return [torch.randn(16, 64, 128, 128)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// y[b, c, i, j] = x gain[c] + row[i]
// [good]
__global__ void affine(const float* __restrict__ x, const float* __restrict__ gain, const float* __restrict__ row, float* __restrict__ y, int channels) {
    const float g = gain[blockIdx.y];  // a block 16 rows of an image of 128 x 128
    const size_t base = ((size_t)blockIdx.z * channels + blockIdx.y) * 16384 + blockIdx.x * 2048;
#pragma unroll
    for (int k = 0; k < 8; k++) {
        const int at = k * 256 + threadIdx.x;
        y[base + at] = x[base + at] * g + row[blockIdx.x * 16 + at / 128];
    }
}

extern "C" int run(const float* x, const float* gain, const float* row, float* y, int batch, int channels, int height, int width, cudaStream_t stream) {
    affine<<<dim3(8, channels, batch), 256, 0, stream>>>(x, gain, row, y, channels);
    return (int)cudaGetLastError();
}
// [faulty]
__global__ void affine(const float* __restrict__ x, const float* __restrict__ gain, const float* __restrict__ row, float* __restrict__ y, long batch,
                       long channels, long height, long width) {
    const long at = (long)blockIdx.x * 256 + threadIdx.x;
    const long j = at % width, i = at / width % height, c = at / (width * height) % channels, b = at / (width * height * channels);
    const long from = ((b * channels + c) * height + i) * width + j;
    y[from] = x[from] * gain[c] + row[i];
}

extern "C" int run(const float* x, const float* gain, const float* row, float* y, int batch, int channels, int height, int width, cudaStream_t stream) {
    affine<<<(int)((long)batch * channels * height * width / 256), 256, 0, stream>>>(x, gain, row, y, batch, channels, height, width);
    return (int)cudaGetLastError();
}
// [end]
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.randn(64))
        self.row = nn.Parameter(torch.randn(128))

    def forward(self, x):
        y = torch.empty_like(x)
        launch("run", x, self.gain, self.row, y, *x.shape)
        return y
