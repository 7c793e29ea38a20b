# fault: needless synchronisation
# class: launch | latency
# diagnosis: needless-sync
# method: drop-sync
# says: .item() copies the scale of each of 16 layers to the host before the layer's next kernel is launched

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.stack([row / (row.square().mean() + 1.0) for row in x])


def get_inputs():
    return [torch.randn(16, 262144)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// y = x / (mean of squares of its row + 1), row by row: partial sums of 64 blocks, their total, the quotient
__global__ void partial(const float* __restrict__ x, float* __restrict__ scratch, int n) {
    float sum = 0.0f;
    for (int i = blockIdx.x * 512 + threadIdx.x; i < n; i += gridDim.x * 512) sum += x[i] * x[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) scratch[blockIdx.x] = sum;
}

__global__ void total(const float* __restrict__ scratch, float* __restrict__ mean, int n) {
    const float sum = block_sum(threadIdx.x < 64 ? scratch[threadIdx.x] : 0.0f);
    if (threadIdx.x == 0) *mean = sum / n;
}

__global__ void divide(const float* __restrict__ x, const float* __restrict__ mean, float by, float* __restrict__ y, int n) {
    const float whole = (mean ? *mean : by) + 1.0f;
    for (int i = blockIdx.x * 512 + threadIdx.x; i < n; i += gridDim.x * 512) y[i] = x[i] / whole;
}

extern "C" int reduce(const float* x, float* scratch, float* mean, int n, cudaStream_t stream) {
    partial<<<64, 512, 0, stream>>>(x, scratch, n);
    total<<<1, 64, 0, stream>>>(scratch, mean, n);
    return (int)cudaGetLastError();
}

extern "C" int divide_by(const float* x, const float* mean, float by, float* y, int n, cudaStream_t stream) {
    divide<<<128, 512, 0, stream>>>(x, mean, by, y, n);
    return (int)cudaGetLastError();
}

extern "C" int layers(const float* x, float* scratch, float* mean, float* y, int rows, int n, cudaStream_t stream) {
    for (int row = 0; row < rows; row++) {
        const size_t at = (size_t)row * n;
        partial<<<64, 512, 0, stream>>>(x + at, scratch, n);
        total<<<1, 64, 0, stream>>>(scratch, mean, n);
        divide<<<128, 512, 0, stream>>>(x + at, mean, 0.0f, y + at, n);
    }
    return (int)cudaGetLastError();
}
"""

launch = load(SOURCE)
NOTHING = torch.empty(0)


class ModelNew(nn.Module):
    def forward(self, x):
        y, scratch, mean = torch.empty_like(x), torch.empty(64, device=x.device), torch.empty(1, device=x.device)
        # [good]
        launch("layers", x, scratch, mean, y, *x.shape)
        # [faulty]
        for row in range(x.shape[0]):
            launch("reduce", x[row], scratch, mean, x.shape[1])
            launch("divide_by", x[row], NOTHING, mean.item(), y[row], x.shape[1])
        # [end]
        return y
