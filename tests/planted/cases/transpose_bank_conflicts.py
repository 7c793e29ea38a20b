# fault: bank conflicts
# class: memory | latency
# diagnosis: bank-conflicts
# method: pad-shared
# says: a tile of 32 x 32 floats without padding is read down its columns, each of which lies in one bank

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x).t().contiguous()


def get_inputs():
    return [torch.randn(8192, 8192)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// y = relu(x)^T for n x n, tiles of 32 x 32, a block of 32 x 8 threads.
__global__ void transpose(const float* __restrict__ x, float* __restrict__ y, int n) {
// [good]
    __shared__ float tile[32][33];
// [faulty]
    __shared__ float tile[32][32];
// [end]
    const int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8) tile[threadIdx.y + k][threadIdx.x] = fmaxf(x[(size_t)(row + k) * n + column], 0.0f);
    __syncthreads();
    const int to_column = blockIdx.y * 32 + threadIdx.x, to_row = blockIdx.x * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8) y[(size_t)(to_row + k) * n + to_column] = tile[threadIdx.x][threadIdx.y + k];
}

extern "C" int run(const float* x, float* y, int n, cudaStream_t stream) {
    transpose<<<dim3(n / 32, n / 32), dim3(32, 8), 0, stream>>>(x, y, n);
    return (int)cudaGetLastError();
}
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        launch("run", x, y, x.shape[0])
        return y
