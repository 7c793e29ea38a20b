# fault: needless copies
# class: memory
# diagnosis: needless-copy
# method: drop-copies
# says: two tensors are concatenated only to be read by the next kernel

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, a, b):
        c = torch.cat([a, b], dim=1)
        return (c * torch.sigmoid(c)).sum(dim=1)


def get_inputs():
    return [torch.randn(8192, 2048), torch.randn(8192, 2048)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// out[row] = sum of v sigmoid(v) over 2048 floats of a and 2048 of b: a block of 256 threads a row; strides in floats
__global__ void sums(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ out, int stride) {
    const float* rows[2] = {a + (size_t)blockIdx.x * stride, b + (size_t)blockIdx.x * stride};
    float sum = 0.0f;
#pragma unroll
    for (int side = 0; side < 2; side++)
#pragma unroll
        for (int k = 0; k < 8; k++) {
            const float v = rows[side][k * 256 + threadIdx.x];
            sum += v / (1.0f + expf(-v));
        }
    sum = block_sum(sum);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

extern "C" int run(const float* a, const float* b, float* out, int rows, int stride, cudaStream_t stream) {
    sums<<<rows, 256, 0, stream>>>(a, b, out, stride);
    return (int)cudaGetLastError();
}
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def forward(self, a, b):
        out = torch.empty(a.shape[0], device=a.device)
        # [good]
        launch("run", a, b, out, a.shape[0], 2048)
        # [faulty]
        c = torch.cat([a, b], dim=1)
        launch("run", c, c[:, 2048:], out, a.shape[0], 4096)
        # [end]
        return out
