# fault: slow functions
# class: compute
# diagnosis: integer-overhead
# method: cheap-indices
# says: indices into a ring buffer and a table are reduced with 64-bit remainders, although both sizes are powers of two

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(1024))

    def forward(self, x):
        rolled = torch.roll(x, -4099)
        place = torch.arange(x.numel(), device=x.device)
        return rolled * self.table[(place * 7 + 3) % 1024] + self.table[place * 5 % 1024]


def get_inputs():
    return [torch.randn(33554432)]


def get_init_inputs():
    return []


# [program]
SOURCE = r"""
// y[i] = x[(i + 4099) mod n] table[(7 i + 3) mod m] + table[5 i mod m]; n and m are powers of two
__global__ void mix(const float* __restrict__ x, const float* __restrict__ table, float* __restrict__ y, long n, long m) {
    const long i = (long)blockIdx.x * 256 + threadIdx.x;
// [good]
    const int at = (int)i;
    y[at] = x[(at + 4099) & (int)(n - 1)] * table[(at * 7 + 3) & (int)(m - 1)] + table[at * 5 & (int)(m - 1)];
// [faulty]
    y[i % n] = x[(i + 4099) % n] * table[(i * 7 + 3) % m] + table[i * 5 % m];
// [end]
}

extern "C" int run(const float* x, const float* table, float* y, int n, int m, cudaStream_t stream) {
    mix<<<n / 256, 256, 0, stream>>>(x, table, y, n, m);
    return (int)cudaGetLastError();
}
"""

launch = load(SOURCE)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(1024))

    def forward(self, x):
        y = torch.empty_like(x)
        launch("run", x, self.table, y, x.numel(), 1024)
        return y
