# fault: bank conflicts
# class: memory | latency
# diagnosis: bank-conflicts
# method: pad-shared
# says: each thread scans 32 adjacent floats in shared memory, so a warp's threads are 32 words apart

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.cumsum(x, dim=1)


def get_inputs():
    return [torch.randn(8192, 2048)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// Prefix sums of rows of 2048: a block of 64 threads a row, 32 neighbouring floats a thread, staged through shared memory.
// [good]
__device__ __forceinline__ int place(int i) { return i + i / 32; }  // a word of padding after every 32
// [faulty]
__device__ __forceinline__ int place(int i) { return i; }
// [end]

__global__ void scan(const float* __restrict__ x, float* __restrict__ y) {
    __shared__ float row[2048 + 64];
    __shared__ float total_of_first;
    const size_t base = (size_t)blockIdx.x * 2048;
    const int t = threadIdx.x;
#pragma unroll 8
    for (int i = t; i < 2048; i += 64) row[place(i)] = x[base + i];
    __syncthreads();
    float sum = 0.0f;
    for (int i = 0; i < 32; i++) {
        sum += row[place(t * 32 + i)];
        row[place(t * 32 + i)] = sum;
    }
    float before = sum;  // inclusive over the warp's threads
    for (int offset = 1; offset < 32; offset *= 2) {
        const float other = __shfl_up_sync(0xffffffffu, before, offset);
        if (t % 32 >= offset) before += other;
    }
    if (t == 31) total_of_first = before;
    __syncthreads();
    before -= sum;
    if (t >= 32) before += total_of_first;
    for (int i = 0; i < 32; i++) row[place(t * 32 + i)] += before;
    __syncthreads();
#pragma unroll 8
    for (int i = t; i < 2048; i += 64) y[base + i] = row[place(i)];
}

extern "C" int run(const float* x, float* y, int rows, cudaStream_t stream) {
    scan<<<rows, 64, 0, stream>>>(x, y);
    return (int)cudaGetLastError();
}
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        launch("run", x, y, x.shape[0])
        return y
