# fault: uncoalesced access
# class: memory
# diagnosis: uncoalesced-access
# method: coalesce
# says: a block goes down one column of a row-major matrix, so a warp's loads are 8 KB apart

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x.mean(dim=0)


def get_inputs():
    return [torch.randn(8192, 2048)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// out[c] = mean over rows of x[rows, columns]
// [good]
// Neighbouring threads take neighbouring columns; a block takes 64 rows of 256 columns, and a second kernel adds the blocks' sums.
__global__ void partial(const float* __restrict__ x, float* __restrict__ scratch, int rows, int columns) {
    const int column = blockIdx.x * 256 + threadIdx.x;
    float sum = 0.0f;
#pragma unroll 8
    for (int row = blockIdx.y * 64; row < blockIdx.y * 64 + 64; row++) sum += x[(size_t)row * columns + column];
    scratch[(size_t)blockIdx.y * columns + column] = sum;
}

__global__ void finish(const float* __restrict__ scratch, float* __restrict__ out, int parts, int columns, float scale) {
    const int column = blockIdx.x * 32 + threadIdx.x;
    float sum = 0.0f;
    for (int part = threadIdx.y; part < parts; part += 8) sum += scratch[(size_t)part * columns + column];
    __shared__ float sums[8][32];
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0) {
        for (int k = 1; k < 8; k++) sum += sums[k][threadIdx.x];
        out[column] = sum * scale;
    }
}

extern "C" int run(const float* x, float* scratch, float* out, int rows, int columns, cudaStream_t stream) {
    partial<<<dim3(columns / 256, rows / 64), 256, 0, stream>>>(x, scratch, rows, columns);
    finish<<<columns / 32, dim3(32, 8), 0, stream>>>(scratch, out, rows / 64, columns, 1.0f / rows);
    return (int)cudaGetLastError();
}
// [faulty]
__global__ void down(const float* __restrict__ x, float* __restrict__ out, int rows, int columns, float scale) {  // a block a column
    float sum = 0.0f;
    for (int row = threadIdx.x; row < rows; row += blockDim.x) sum += x[(size_t)row * columns + blockIdx.x];
    sum = block_sum(sum);
    if (threadIdx.x == 0) out[blockIdx.x] = sum * scale;
}

extern "C" int run(const float* x, float* scratch, float* out, int rows, int columns, cudaStream_t stream) {
    down<<<columns, 256, 0, stream>>>(x, out, rows, columns, 1.0f / rows);
    return (int)cudaGetLastError();
}
// [end]
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        out = torch.empty(columns, device=x.device)
        scratch = torch.empty(rows // 64, columns, device=x.device)
        launch("run", x, scratch, out, rows, columns)
        return out
