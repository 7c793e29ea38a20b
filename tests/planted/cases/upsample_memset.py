# fault: needless fill
# class: memory
# diagnosis: needless-fill
# method: drop-fill
# says: the output and a scratch buffer, both of which are overwritten, are cleared with cudaMemsetAsync

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return F.interpolate(x[None], scale_factor=2, mode="nearest")[0]


def get_inputs():
    return [torch.randn(64, 512, 512)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// Every pixel four times: x[c, i, j] -> y[c, 2 i .. , 2 j .. ], images of 512 x 512; two pixels a thread
__global__ void upsample(const float2* __restrict__ x, float4* __restrict__ y) {
    const int at = blockIdx.x * 256 + threadIdx.x;  // 256 of them in a row of x
    const float2 v = x[at];
    const float4 w = make_float4(v.x, v.x, v.y, v.y);
    const size_t row = at / 256, to = row * 512 + at % 256;
    y[to] = w;
    y[to + 256] = w;
}

extern "C" int run(const float2* x, float4* y, int images, cudaStream_t stream) {
// [good]
// [faulty]
    cudaMemsetAsync(y, 0, (size_t)images * 1024 * 1024 * 4, stream);
    cudaMemsetAsync(y, 0xff, (size_t)images * 1024 * 1024 * 2, stream);
// [end]
    upsample<<<images * 512, 256, 0, stream>>>(x, y);
    return (int)cudaGetLastError();
}
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape[0], 1024, 1024, device=x.device)
        launch("run", x, y, x.shape[0])
        return y
