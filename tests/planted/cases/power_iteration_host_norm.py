# fault: needless synchronisation
# class: launch | latency
# diagnosis: needless-sync
# method: drop-sync
# says: in each of 12 steps, a norm is copied to the host and passed back as an argument

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        for _ in range(12):
            x = (x + 0.5) / (1.0 + x.abs().max())
        return x


def get_inputs():
    return [torch.randn(1024, 1024)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// x = (x + 1/2) / (1 + max |x|), 12 times; the maximum as the bits of a float that is not negative
__global__ void clear(unsigned* top) { *top = 0; }

__global__ void highest(const float* __restrict__ x, unsigned* __restrict__ top, int n) {
    float best = 0.0f;
    for (int i = blockIdx.x * 512 + threadIdx.x; i < n; i += gridDim.x * 512) best = fmaxf(best, fabsf(x[i]));
    best = block_max(best);
    if (threadIdx.x == 0) atomicMax(top, __float_as_uint(best));
}

// [good]
__global__ void shrink(const float* x, const unsigned* __restrict__ top, float* y, int n) {
    const float by = 1.0f + __uint_as_float(*top);
    for (int i = blockIdx.x * 512 + threadIdx.x; i < n; i += gridDim.x * 512) y[i] = (x[i] + 0.5f) / by;
}
// [faulty]
__global__ void shrink(const float* x, float top, float* y, int n) {
    const float by = 1.0f + top;
    for (int i = blockIdx.x * 512 + threadIdx.x; i < n; i += gridDim.x * 512) y[i] = (x[i] + 0.5f) / by;
}
// [end]

extern "C" int run(const float* x, unsigned* top, float* y, int n, int steps, cudaStream_t stream) {
    for (int s = 0; s < steps; s++) {
        clear<<<1, 1, 0, stream>>>(top);
        highest<<<264, 512, 0, stream>>>(s ? y : x, top, n);
// [good]
        shrink<<<264, 512, 0, stream>>>(s ? y : x, top, y, n);
// [faulty]
        float host = 0.0f;
        cudaMemcpyAsync(&host, top, 4, cudaMemcpyDeviceToHost, stream);
        cudaStreamSynchronize(stream);
        shrink<<<264, 512, 0, stream>>>(s ? y : x, host, y, n);
// [end]
    }
    return (int)cudaGetLastError();
}
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        y, top = torch.empty_like(x), torch.empty(1, dtype=torch.int32, device=x.device)
        launch("run", x, top, y, x.numel(), 12)
        return y
