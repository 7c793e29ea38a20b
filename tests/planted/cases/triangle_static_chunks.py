# fault: load imbalance
# class: occupancy | latency | compute
# diagnosis: load-imbalance
# method: balance-work
# says: the rows of a triangle are assigned to blocks in order, so the last blocks have the longest rows

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.tril(torch.tanh(x) * torch.sin(x) + torch.erf(x) * torch.cos(x) + torch.log1p(x * x) * torch.atan(x)).sum(dim=1)


def get_inputs():
    return [torch.randn(4224, 4224)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// out[i] = sum over j <= i of tanh(v) sin(v) + erf(v) cos(v) + log(1 + v^2) atan(v), v = x[i, j]: 132 blocks, 32 rows each, a warp a row
#define N 4224
__global__ void __launch_bounds__(1024) rows(const float* __restrict__ x, float* __restrict__ out) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
// [good]
    const int row = warp % 2 ? warp * 132 + 131 - blockIdx.x : warp * 132 + blockIdx.x;  // dealt out to and fro
// [faulty]
    const int row = blockIdx.x * 32 + warp;
// [end]
    float sum = 0.0f;
#pragma unroll 2
    for (int j = lane; j <= row; j += 32) {
        const float v = x[(size_t)row * N + j];
        sum += tanhf(v) * sinf(v) + erff(v) * cosf(v) + log1pf(v * v) * atanf(v);
    }
    sum = warp_sum(sum);
    if (lane == 0) out[row] = sum;
}

extern "C" int run(const float* x, float* out, cudaStream_t stream) {
    rows<<<132, 1024, 0, stream>>>(x, out);
    return (int)cudaGetLastError();
}
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[0], device=x.device)
        launch("run", x, out)
        return out
