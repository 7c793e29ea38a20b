# fault: uncoalesced access
# class: memory
# diagnosis: uncoalesced-access
# method: coalesce
# says: each thread walks along one row, so a warp's loads are a row of 512 bytes apart

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return (x * x).sum(dim=1)


def get_inputs():
    return [torch.randn(262144, 128)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// out[row] = sum of squares of 128 floats.
// [good]
__global__ void squares(const float* __restrict__ x, float* __restrict__ out, int rows) {  // a warp a row, 16 bytes a lane
    const int row = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    const float4 v = reinterpret_cast<const float4*>(x)[(size_t)row * 32 + lane];
    const float sum = warp_sum(v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w);
    if (lane == 0) out[row] = sum;
}

extern "C" int run(const float* x, float* out, int rows, cudaStream_t stream) {
    squares<<<(rows + 7) / 8, 256, 0, stream>>>(x, out, rows);
    return (int)cudaGetLastError();
}
// [faulty]
__global__ void squares(const float* __restrict__ x, float* __restrict__ out, int rows) {  // a thread a row
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0.0f;
    for (int i = 0; i < 128; i++) {
        const float v = x[(size_t)row * 128 + i];
        sum += v * v;
    }
    out[row] = sum;
}

extern "C" int run(const float* x, float* out, int rows, cudaStream_t stream) {
    squares<<<(rows + 255) / 256, 256, 0, stream>>>(x, out, rows);
    return (int)cudaGetLastError();
}
// [end]
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[0], device=x.device)
        launch("run", x, out, x.shape[0])
        return out
