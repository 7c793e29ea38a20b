# fault: needless synchronisation
# class: latency | memory
# diagnosis: barrier-stalls
# method: fewer-barriers
# says: eight warps stage each tile of a sum in shared memory, and all wait at a barrier twice for every load

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x.abs().mean(dim=1)


def get_inputs():
    return [torch.randn(1056, 32768)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// out[row] = mean of |x| over 32768 floats: a block of 1024 threads a row
__global__ void __launch_bounds__(1024) means(const float* x, float* out) {
    const float* row = x + (size_t)blockIdx.x * 32768;
    float sum = 0.0f;
// [good]
#pragma unroll 8
    for (int i = threadIdx.x; i < 32768; i += 1024) sum += fabsf(row[i]);
// [faulty]
    __shared__ float4 tile[256];
    for (int i = 0; i < 32768; i += 1024) {
        if (threadIdx.x < 256) tile[threadIdx.x] = reinterpret_cast<const float4*>(row + i)[threadIdx.x];
        __syncthreads();
        sum += fabsf(reinterpret_cast<const float*>(tile)[threadIdx.x]);
        __syncthreads();
    }
// [end]
    sum = block_sum(sum);
    if (threadIdx.x == 0) out[blockIdx.x] = sum / 32768.0f;
}

extern "C" int run(const float* x, float* out, int rows, cudaStream_t stream) {
    means<<<rows, 1024, 0, stream>>>(x, out);
    return (int)cudaGetLastError();
}
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[0], device=x.device)
        launch("run", x, out, x.shape[0])
        return out
