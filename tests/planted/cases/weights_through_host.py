# fault: host copies
# class: latency | launch
# diagnosis: host-copies | needless-sync
# method: keep-on-device | drop-sync
# says: the rows' divisors are copied to the host and back before they are used

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x / (x.abs().sum(dim=1, keepdim=True) + 1.0)


def get_inputs():
    return [torch.randn(65536, 128)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// y = x / (sum of |x| over its row of 128, plus 1), a warp a row
__global__ void norms(const float4* __restrict__ x, float* __restrict__ out) {
    const int row = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
    const float4 v = x[(size_t)row * 32 + lane];
    const float sum = warp_sum(fabsf(v.x) + fabsf(v.y) + (fabsf(v.z) + fabsf(v.w)));
    if (lane == 0) out[row] = sum + 1.0f;
}

__global__ void divide(const float4* __restrict__ x, const float* __restrict__ by, float4* __restrict__ y) {
    const size_t at = (size_t)blockIdx.x * 256 + threadIdx.x;
    const float d = by[at / 32];
    const float4 v = x[at];
    y[at] = make_float4(v.x / d, v.y / d, v.z / d, v.w / d);
}

extern "C" int reduce(const float4* x, float* out, int rows, cudaStream_t stream) {
    norms<<<rows / 8, 256, 0, stream>>>(x, out);
    return (int)cudaGetLastError();
}

extern "C" int scale(const float4* x, const float* by, float4* y, int rows, cudaStream_t stream) {
    divide<<<rows / 8, 256, 0, stream>>>(x, by, y);
    return (int)cudaGetLastError();
}
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        y, by = torch.empty_like(x), torch.empty(x.shape[0], device=x.device)
        launch("reduce", x, by, x.shape[0])
        # [good]
        # [faulty]
        by = by.cpu().clone().to(x.device)
        # [end]
        launch("scale", x, by, y, x.shape[0])
        return y
