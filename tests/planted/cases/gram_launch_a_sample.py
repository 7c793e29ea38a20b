# fault: tiny launches
# class: launch
# diagnosis: tiny-launches
# method: batch-launches
# says: Python launches a kernel for each of 64 samples

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x / (x.abs().amax(dim=1, keepdim=True) + 1.0)


def get_inputs():
    return [torch.randn(64, 65536)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// y = x / (max |x| of its sample + 1), samples of 65536: the maxima of 16 parts, then the quotient; a block a part
__global__ void tops(const float* __restrict__ x, float* __restrict__ scratch) {
    const size_t base = (size_t)blockIdx.y * 65536 + blockIdx.x * 4096 + threadIdx.x;
    float top = 0.0f;
#pragma unroll
    for (int k = 0; k < 8; k++) top = fmaxf(top, fabsf(x[base + k * 512]));
    top = block_max(top);
    if (threadIdx.x == 0) scratch[blockIdx.y * 16 + blockIdx.x] = top;
}

__global__ void scale(const float* __restrict__ x, const float* __restrict__ scratch, float* __restrict__ y) {
    const size_t base = (size_t)blockIdx.y * 65536 + blockIdx.x * 4096 + threadIdx.x;
    const float by = warp_max(scratch[blockIdx.y * 16 + threadIdx.x % 16]) + 1.0f;
#pragma unroll
    for (int k = 0; k < 8; k++) y[base + k * 512] = x[base + k * 512] / by;
}

extern "C" int run(const float* x, float* scratch, float* y, int samples, cudaStream_t stream) {
    tops<<<dim3(16, samples), 512, 0, stream>>>(x, scratch);
    scale<<<dim3(16, samples), 512, 0, stream>>>(x, scratch, y);
    return (int)cudaGetLastError();
}
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        y, scratch = torch.empty_like(x), torch.empty(x.shape[0], 16, device=x.device)
        # [good]
        launch("run", x, scratch, y, x.shape[0])
        # [faulty]
        for i in range(x.shape[0]):
            launch("run", x[i], scratch[i], y[i], 1)
        # [end]
        return y
