# fault: missing vectorisation
# class: latency | memory
# diagnosis: scalar-access
# method: vectorise
# says: a reduction over bytes loads one byte at a time instead of sixteen

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x.sum(dim=1, dtype=torch.int32)


def get_inputs():
    return [torch.randint(0, 256, (8192, 4096), dtype=torch.uint8)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// out[row] = sum of the bytes of a row of 4096; a block of 256 threads a row
__device__ int block_total(int v) {
    __shared__ int part[8];
    for (int offset = 16; offset; offset >>= 1) v += __shfl_xor_sync(0xffffffffu, v, offset);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    v = part[threadIdx.x % 8];
    for (int offset = 4; offset; offset >>= 1) v += __shfl_xor_sync(0xffffffffu, v, offset);
    return v;
}

__global__ void sums(const uint8_t* __restrict__ x, int* __restrict__ out) {
    const uint8_t* row = x + (size_t)blockIdx.x * 4096;
    int sum = 0;
// [good]
    const uint4 v = reinterpret_cast<const uint4*>(row)[threadIdx.x];
    sum = __dp4a(v.x, 0x01010101u, 0u) + __dp4a(v.y, 0x01010101u, 0u) + __dp4a(v.z, 0x01010101u, 0u) + __dp4a(v.w, 0x01010101u, 0u);
// [faulty]
#pragma unroll 1
    for (int i = threadIdx.x; i < 4096; i += 256) sum += row[i];
// [end]
    sum = block_total(sum);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

extern "C" int run(const uint8_t* x, int* out, int rows, cudaStream_t stream) {
    sums<<<rows, 256, 0, stream>>>(x, out);
    return (int)cudaGetLastError();
}
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[0], dtype=torch.int32, device=x.device)
        launch("run", x, out, x.shape[0])
        return out
